"""The promise table names every promise once, and only tests that exist."""

import re

from tests.tidy.sources import ROOT, python_files

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
IDS = [f"{kind}{n}" for kind, last in (("N", 13), ("R", 12), ("S", 11)) for n in range(1, last + 1)]


def missing_tests(text: str) -> list[str]:
    """Return the tests that a text names and no file has."""
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in python_files("tests/")}
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(text)
        if f"def {name}(" not in sources.get(path, "")
    ]


def test_table_names_every_promise_once_and_only_tests_that_exist() -> None:
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| ([NRS]\d+) \|", text, re.MULTILINE) == IDS
    assert not missing_tests(text)


def test_a_test_that_does_not_exist_is_found() -> None:
    assert missing_tests("`tests/tidy/test_promises.py::test_absent`")
    assert missing_tests("`tests/tidy/test_absent.py::test_absent`")
