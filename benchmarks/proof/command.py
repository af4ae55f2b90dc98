"""`lumotree prove`: every check of the proof, each with a control that must fire."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.proof.check import FAMILIES, Check
from benchmarks.proof.rules import read_rules
from services.commands.options import EMBEDDED_MODEL
from services.contract.errors import InvalidField

ROOT = Path(__file__).resolve().parents[2]
PLANT_HELP = "Break the system in one named way; exit code 1 if that is seen."


def prove(
    only: Annotated[str, typer.Option("--only", help=f"Of {', '.join(FAMILIES)}.")] = "",
    plant: Annotated[str, typer.Option("--plant", help=PLANT_HELP)] = "",
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    model: Annotated[Path, typer.Option("--model", help="Checkpoint folder.")] = EMBEDDED_MODEL,
    output: Annotated[Path | None, typer.Option("--output", help="JSON file to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Prove that tree decoding is plain decoding; exit code 1 if anything stands against it."""
    _prepare(device)
    families = only.split(",") if only else list(FAMILIES)
    for family in families:
        if family not in FAMILIES:
            text = f"{family!r} is no family; known are {', '.join(FAMILIES)}"
            raise InvalidField("UNKNOWN_FAMILY", text, "only")
    if plant:
        _plant(plant, model, device, as_json)
        return
    report = _prove(families, model, device, Console(stderr=True, quiet=as_json))
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    _show(report, as_json)
    if not report["holds"]:
        raise typer.Exit(1)


def _prepare(device: str) -> None:
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


def _prove(families: list[str], model: Path, device: str, console: Console) -> dict[str, Any]:
    from benchmarks.proof.provenance import provenance
    from benchmarks.proof.world import World

    rules, digest = read_rules()
    console.print(f"rules {digest}")
    world, checks = World(rules, model, device), []
    start = time.perf_counter()
    for family in families:
        with console.status(family):
            for check in timed(import_module(f"benchmarks.proof.{family}").run(world)):
                checks.append(check)
                console.print(line(check))
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
        return f"[dim]-     {check.family}: {check.name}: {check.not_run}[/dim]"
    mark = "[green]holds[/green]" if check.holds else "[red]FAILS[/red]"
    return f"{mark} {check.family}: {check.name} {check.passed}/{check.cases}"


def _show(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(report))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("family", "check", "cases", "passed", "control", "seconds"):
        table.add_column(name, justify="left" if name in ("family", "check") else "right")
    for check in report["checks"]:
        control = check["not_run"] or ("fired" if check["control"] else "DID NOT FIRE")
        numbers = ("", "") if check["not_run"] else (str(check["cases"]), str(check["passed"]))
        table.add_row(check["family"], check["name"], *numbers, control, str(check["seconds"]))
    console = Console()
    console.print(table)
    verdict = "holds" if report["holds"] else "FAILS"
    console.print(f"{verdict} in {report['seconds']} s; rules {report['rules_sha256']}")


def _plant(name: str, model: Path, device: str, as_json: bool) -> None:
    from benchmarks.proof.plants import run_planted
    from benchmarks.proof.world import World

    rules, digest = read_rules()
    planted = run_planted(World(rules, model, device, short=True), name)
    is_seen = not planted.check.holds
    if as_json:
        result = {"plant": name, "is_seen": is_seen, "seen_by": planted.seen_by}
        print(json.dumps({**result, "rules_sha256": digest, "check": vars(planted.check)}))
    elif is_seen:
        print(f"{name}: found by {', '.join(planted.seen_by)}; {planted.check.name}: FAILS")
    else:
        print(f"{name}: not found")
    if is_seen:
        raise typer.Exit(1)
