"""Write deploy/sbom.json: what the image holds of Python, from the locks, as CycloneDX.

`python deploy/sbom.py` writes the file, `--check` compares and exits 1 if it differs.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?==([^\s\\]+)", re.MULTILINE)
BASE = re.compile(r"^ARG BASE=(\S+):(\S+)$", re.MULTILINE)
LOCKS = ("requirements/base.lock", "requirements/cuda.lock", "requirements/torch.txt")


def make_sbom(root: Path) -> str:
    """Return the bill of materials of a source tree; it names no time, so it can be re-made."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    texts = {name: (root / name).read_text() for name in LOCKS}
    pins = sorted(pin for text in texts.values() for pin in PIN.findall(text))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "lumotree",
                "name": project["name"],
                "version": project["version"],
            },
            "properties": [_digest(name, text) for name, text in texts.items()],
        },
        "components": [_base_image(root), *(_library(*pin) for pin in pins)],
    }
    return json.dumps(document, indent=1) + "\n"


def _digest(name: str, text: str) -> dict[str, str]:
    return {"name": f"sha256:{name}", "value": hashlib.sha256(text.encode()).hexdigest()}


def _base_image(root: Path) -> dict[str, Any]:
    found = BASE.search((root / "Dockerfile").read_text())
    if found is None:
        raise SystemExit("Dockerfile names no base; give it a line ARG BASE=image:tag")
    name, version = found.groups()
    return {"type": "container", "bom-ref": name, "name": name, "version": version}


def _library(name: str, version: str) -> dict[str, str]:
    reference = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
    }


def main(arguments: list[str]) -> int:
    """Write or check the file; return the exit status."""
    path = ROOT / "deploy" / "sbom.json"
    text = make_sbom(ROOT)
    if arguments == ["--check"]:
        if path.read_text() == text:
            return 0
        print("deploy/sbom.json does not fit the locks; run python deploy/sbom.py", file=sys.stderr)
        return 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
