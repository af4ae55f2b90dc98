"""Run families of checks and gather one report; needs no terminal library."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.proof.check import FAMILIES, Check
from benchmarks.proof.rules import read_rules
from services.contract.errors import InvalidField

ROOT = Path(__file__).resolve().parents[2]
EMBEDDED_MODEL = ROOT / "models" / "lumo-tiny"


def family_names(only: str) -> list[str]:
    """Return the families that a comma-separated list names; all of them for an empty one.

    Raises  InvalidField for a name that is none.
    """
    families = only.split(",") if only else list(FAMILIES)
    for family in families:
        if family not in FAMILIES:
            text = f"{family!r} is no family; known are {', '.join(FAMILIES)}"
            raise InvalidField("UNKNOWN_FAMILY", text, "only")
    return families


def prepare(device: str) -> None:
    """Make the test helpers importable and pin the threads, before torch is loaded."""
    if device not in ("cpu", "cuda"):
        raise InvalidField("UNKNOWN_DEVICE", f"{device!r}; use cpu or cuda", "device")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["LUMOTREE_TEST_MODE"] = "1"
    if not (ROOT / "tests" / "ring.py").exists():
        text = "the proof uses the repository's tests folder; run it from a checkout"
        raise InvalidField("NO_TESTS", text, "prove")
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    import torch

    torch.set_num_threads(1)


def run_families(
    families: list[str], model: Path, device: str, show: Callable[[str], None]
) -> dict[str, Any]:
    """Run the checks; `show` gets a line as each ends."""
    from benchmarks.proof.provenance import provenance
    from benchmarks.proof.world import World

    rules, digest = read_rules()
    show(f"rules {digest}")
    world, checks = World(rules, model, device), []
    start = time.perf_counter()
    for family in families:
        for check in timed(import_module(f"benchmarks.proof.{family}").run(world)):
            checks.append(check)
            show(line(check))
    return {
        "rules_sha256": digest,
        "provenance": provenance(device, model),
        "seconds": round(time.perf_counter() - start, 1),
        "holds": all(check.holds for check in checks),
        "checks": [vars(check) | {"holds": check.holds} for check in checks],
    }


def timed(checks: Iterator[Check]) -> Iterator[Check]:
    """Yield checks with the seconds each took."""
    while True:
        start = time.perf_counter()
        check = next(checks, None)
        if check is None:
            return
        check.seconds = round(time.perf_counter() - start, 2)
        yield check


def line(check: Check) -> str:
    """Return the progress line of a check."""
    if check.not_run:
        return f"-     {check.family}: {check.name}: {check.not_run}"
    mark = "holds" if check.holds else "FAILS"
    return f"{mark} {check.family}: {check.name} {check.passed}/{check.cases}"


def save(report: dict[str, Any], output: Path | None) -> None:
    """Write a report and its table, if a file is named."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        output.with_suffix(".md").write_text(markdown(report), encoding="utf-8")


def markdown(report: dict[str, Any]) -> str:
    """Return a report as a table."""
    facts = report["provenance"]
    versions = ", ".join(f"{name} {text}" for name, text in facts["versions"].items())
    verdict = "holds" if report["holds"] else "FAILS"
    lines = [
        f"# lumotree prove on {facts['device_name']}: {verdict}",
        "",
        f"{facts['date']}, {report['seconds']} s, {facts['threads']} thread, {facts['model']},",
        f"python {facts['python']}, {versions}; rules {report['rules_sha256']}.",
        "",
        "| family | check | cases | passed | control |",
        "|---|---|---|---|---|",
    ]
    for check in report["checks"]:
        control = check["not_run"] or ("fired" if check["control"] else "DID NOT FIRE")
        numbers = ("", "") if check["not_run"] else (check["cases"], check["passed"])
        cells = check["family"], check["name"], *numbers, control
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"
