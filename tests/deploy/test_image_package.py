"""The package that the Dockerfile installs runs without what only tests have."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, tracked_files

SCRIPT = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("matplotlib", "transformers", "pytest", "hypothesis", "tests"):
            raise ImportError(name)

site, source = sys.argv[1:]
editable = [x for x in sys.meta_path if "editable" in getattr(x, "__module__", "")]
sys.meta_path[:] = [Absent(), *(x for x in sys.meta_path if x not in editable)]
sys.path[:] = [site, *(p for p in sys.path if p != source)]
import services
if not services.__file__.startswith(site):
    raise SystemExit("another services was imported")
sys.argv = ["lumotree", "--help"]
from services.cli import main
main()
"""


def copied_for_build() -> list[str]:
    """Return the parts of the source tree that the Dockerfile's first stage installs."""
    first = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1]
    lines = re.findall(r"^COPY (.*) \S+$", first, re.MULTILINE)
    return [name for line in lines for name in line.split() if not name.startswith("require")]


def install(parts: list[str], folder: Path) -> Path:
    """Install the package of some parts of the source tree; return where."""
    source, site = folder / "source", folder / "site"
    for path in tracked_files():
        if path.startswith(tuple(parts)):
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, source / path)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", "--target", str(site), str(source)], check=True)
    return site


def help_of(site: Path) -> subprocess.CompletedProcess[str]:
    """Run the installed command's help without the development packages."""
    command = [sys.executable, "-I", "-c", SCRIPT, str(site), str(ROOT)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_installed_package_has_its_commands_and_data(tmp_path: Path) -> None:
    parts = copied_for_build()
    assert "services" in parts and "pyproject.toml" in parts
    site = install(parts, tmp_path / "whole")
    done = help_of(site)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("serve", "generate", "bench", "prove"))
    packages = ("services/", "benchmarks/")
    data = [
        x for x in tracked_files() if x.startswith(packages) and x.endswith((".json", ".typed"))
    ]
    assert data and all((site / path).is_file() for path in data)
    without = install([x for x in parts if x != "benchmarks"], tmp_path / "part")
    assert help_of(without).returncode != 0
