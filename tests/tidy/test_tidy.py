"""Sizes, banned calls, leftovers and machine names."""

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.tidy.sources import GENERATED, ROOT, python_files, syntax, tracked_files

MAX_FUNCTION = 60
MAX_KERNEL_FUNCTION = 150
MAX_FILE = 300
MAX_TEST_FILE = 400
FOLDERS = ("services/", "tests/", "benchmarks/", "proto/", "models/", "deploy/")
BANNED_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
BANNED_CALLS = {
    "eval": "parse the text instead",
    "exec": "call a function instead",
    "yaml.load": "use yaml.safe_load",
    "torch.load": "use safetensors",
    "np.load": "use safetensors or np.frombuffer",
    "numpy.load": "use safetensors or np.frombuffer",
    "os.system": "use subprocess with a list",
    "queue.Queue()": "give it a maxsize",
    "asyncio.Queue()": "give it a maxsize",
    "queue.SimpleQueue()": "use a queue with a maxsize",
}
BANNED_KEYWORDS = {("shell", True), ("trust_remote_code", True)}
LEFTOVERS = re.compile(r"TODO|FIXME|XXX |type: ignore")
MARKS = {"skip", "skipif", "xfail", "flaky"}
# The image's own user lives in /home/lumotree.
MACHINE = re.compile(r"(?<![\w.])/(?:work|root|home)/(?!lumotree)\w|(?<!\w)/tmp/\w")
HOSTS = re.compile(r"pypi\.org|pythonhosted|registry\.npm|index-url=")
# Not looked at: generated, data, and this file, which names what it looks for.
UNREAD = ("benchmarks/data/", GENERATED, "models/", "tests/data/", "tests/tidy/test_tidy.py")


def sized_functions(path: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Return each function's name and its number of lines, docstring apart."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None
            start = (node.body[0].end_lineno or 0) if documented else node.lineno - 1
            yield f"{path}:{node.lineno} {node.name}", (node.end_lineno or 0) - start


def is_kernel(path: str) -> bool:
    """Say whether a file holds kernel bodies."""
    return bool(re.search(r"services/kernels/\w+/(cpu|kernel)\w*\.py$", path))


def banned(path: str, tree: ast.Module) -> Iterator[str]:
    """Return the banned calls and imports of a module."""
    for node in ast.walk(tree):
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", "") or ""}
            yield from (f"{where} imports {x}" for x in names if x.split(".")[0] in BANNED_MODULES)
        if isinstance(node, ast.Call):
            yield from (f"{where} {fault}" for fault in _call_faults(node))


def _call_faults(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    bare = f"{name}()" if not node.args and not node.keywords else name
    if (reason := BANNED_CALLS.get(name) or BANNED_CALLS.get(bare)) is not None:
        yield f"calls {name}: {reason}"
    for keyword in node.keywords:
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if (keyword.arg, value) in BANNED_KEYWORDS:
            yield f"passes {keyword.arg}={value}"


def asserts(path: str, tree: ast.Module) -> Iterator[str]:
    """Return the assert statements of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield f"{path}:{node.lineno} asserts; raise a ContractError"


def marked(path: str, tree: ast.Module) -> Iterator[str]:
    """Return uses of pytest marks that leave a test out or run it again."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in MARKS:
            owner = ast.unparse(node.value)
            if owner in ("pytest", "pytest.mark"):
                yield f"{path}:{node.lineno} uses {owner}.{node.attr}"


def text_faults(path: str, text: str, pattern: re.Pattern[str]) -> list[str]:
    """Return the lines of a text that match."""
    lines = enumerate(text.splitlines(), 1)
    return [
        f"{path}:{number} {line.strip()[:90]}" for number, line in lines if pattern.search(line)
    ]


def _report(check: Callable[[str, ast.Module], Iterator[str]], folder: str) -> list[str]:
    return [fault for path in python_files(folder) for fault in check(path, syntax(path))]


def _text_files() -> Iterator[tuple[str, str]]:
    for path in tracked_files():
        if path.endswith((".safetensors", ".png", "tokenizer.json", ".gz")):
            continue
        yield path, (ROOT / path).read_text(encoding="utf-8")


def test_functions_are_small() -> None:
    for folder in FOLDERS:
        for path in python_files(folder):
            limit = MAX_KERNEL_FUNCTION if is_kernel(path) else MAX_FUNCTION
            for name, lines in sized_functions(path, syntax(path)):
                assert lines <= limit, f"{name} has {lines} lines; limit {limit}"


def test_files_are_small() -> None:
    for folder in FOLDERS:
        for path in python_files(folder):
            limit = MAX_TEST_FILE if path.startswith("tests/") or is_kernel(path) else MAX_FILE
            lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
            assert lines <= limit, f"{path} has {lines} lines; limit {limit}"


def test_services_make_no_code_from_bytes_and_assert_nothing() -> None:
    found = _report(banned, "services/") + _report(asserts, "services/")
    assert not found, "\n".join(found)


def test_no_test_is_left_out_and_none_runs_again() -> None:
    found = _report(marked, "tests/")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("pattern", [LEFTOVERS, MACHINE, HOSTS], ids=["leftover", "path", "host"])
def test_texts_hold_no_leftovers_machine_paths_or_hosts(pattern: re.Pattern[str]) -> None:
    found = [
        fault
        for path, text in _text_files()
        if not path.startswith(UNREAD)
        for fault in text_faults(path, text, pattern)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "eval('1')",
        "import queue\nqueue.Queue()",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "f(trust_remote_code=True)",
    ],
)
def test_a_banned_call_is_found(code: str) -> None:
    assert list(banned("services/x.py", ast.parse(code)))


def test_the_other_checks_find_their_fault() -> None:
    long = "def f():\n" + "    x = 1\n" * 60
    assert dict(sized_functions("x.py", ast.parse(long)))["x.py:1 f"] == MAX_FUNCTION + 1
    assert list(asserts("x.py", ast.parse("assert x")))
    assert list(marked("x.py", ast.parse("@pytest.mark.skip\ndef test(): ...")))
    assert text_faults("x.md", "see /work/main", MACHINE)
    assert text_faults("x.md", "from pypi.org", HOSTS)
    assert text_faults("x.py", "# TODO later", LEFTOVERS)
    assert not list(banned("x.py", ast.parse("import queue\nqueue.Queue(maxsize=4)\nnp.full(3)")))
