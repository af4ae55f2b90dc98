"""S10: the bill of materials is what the locks give, and lists every locked package."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path

from tests.tidy.sources import ROOT

SBOM = runpy.run_path(str(ROOT / "deploy" / "sbom.py"))
LOCKS, make_sbom = SBOM["LOCKS"], SBOM["make_sbom"]


def test_sbom_is_remade_equal_and_lists_every_pin() -> None:
    committed = (ROOT / "deploy" / "sbom.json").read_text()
    assert committed == make_sbom(ROOT), "run python deploy/sbom.py"
    parts = json.loads(committed)
    assert (parts["bomFormat"], parts["specVersion"]) == ("CycloneDX", "1.6")
    pins = sum(len(re.findall(r"^\S+==", (ROOT / x).read_text(), re.MULTILINE)) for x in LOCKS)
    libraries = [x for x in parts["components"] if x["type"] == "library"]
    assert len(libraries) == pins > 50
    assert {"torch", "ray", "grpcio"} <= {x["name"] for x in libraries}


def test_another_lock_gives_another_sbom(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "Dockerfile", *LOCKS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    assert make_sbom(tmp_path) == make_sbom(ROOT)
    lock = tmp_path / LOCKS[0]
    lock.write_text(lock.read_text().replace("grpcio==1.", "grpcio==2.", 1))
    assert make_sbom(tmp_path) != make_sbom(ROOT)
