"""`lumotree prove`: every check of the proof, each with a control that must fire."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.proof.check import FAMILIES
from benchmarks.proof.rules import read_rules
from benchmarks.proof.runner import JOBS, family_names, prepare, run_families, save
from services.commands.options import EMBEDDED_MODEL

PLANT_HELP = "Break the system in one named way; exit code 1 if that is seen."


def prove(
    only: Annotated[str, typer.Option("--only", help=f"Of {', '.join(FAMILIES)}.")] = "",
    plant: Annotated[str, typer.Option("--plant", help=PLANT_HELP)] = "",
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    model: Annotated[Path, typer.Option("--model", help="Checkpoint folder.")] = EMBEDDED_MODEL,
    output: Annotated[Path | None, typer.Option("--output", help="JSON file to write.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Families at a time.")] = JOBS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Prove that tree decoding is plain decoding; exit code 1 if anything stands against it."""
    prepare(device)
    families = family_names(only)
    if plant:
        _plant(plant, model, device, as_json)
        return
    console = Console(stderr=True, quiet=as_json)
    show = partial(console.print, markup=False)
    report = run_families(families, model, device, show, jobs)
    save(report, output)
    _show(report, as_json)
    if not report["holds"]:
        raise typer.Exit(1)


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
