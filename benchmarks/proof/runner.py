"""Run families of checks and gather one report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.proof.check import FAMILIES, Check
from benchmarks.proof.rules import read_rules
from services.contract.errors import InvalidField

ROOT = Path(__file__).resolve().parents[2]
JOBS = 2


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
    families: list[str], model: Path, device: str, show: Callable[[str], None], jobs: int = 1
) -> dict[str, Any]:
    """Run the checks; `show` gets a line as each ends.

    Args    jobs: families that run at a time, each in its own process; 1 runs them here.
    """
    from benchmarks.proof.provenance import provenance

    _, digest = read_rules()
    show(f"rules {digest}")
    start = time.perf_counter()
    if jobs > 1:
        checks = elsewhere(families, model, device, show, jobs)
    else:
        checks = here(families, model, device, show)
    return {
        "rules_sha256": digest,
        "provenance": provenance(device, model),
        "processes": jobs,
        "seconds": round(time.perf_counter() - start, 1),
        "holds": all(check["holds"] for check in checks),
        "checks": checks,
    }


def here(
    families: list[str], model: Path, device: str, show: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Run families one after the other in this process."""
    from benchmarks.proof.world import World

    world, checks = World(read_rules()[0], model, device), []
    for family in families:
        for check in timed(import_module(f"benchmarks.proof.{family}").run(world)):
            checks.append(vars(check) | {"holds": check.holds})
            show(line(check))
    return checks


def elsewhere(
    families: list[str], model: Path, device: str, show: Callable[[str], None], jobs: int
) -> list[dict[str, Any]]:
    """Run each family in its own process, `jobs` at a time; return the checks in order."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        one = partial(_family, folder=Path(folder), model=model, device=device, show=show)
        return [check for checks in pool.map(one, families) for check in checks]


def _family(
    family: str, folder: Path, model: Path, device: str, show: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Run one family in a process; a process that ends without a result is a failed check."""
    output, log = folder / f"{family}.json", folder / f"{family}.log"
    command = [sys.executable, "-m", "benchmarks.proof.alone"]
    command += [family, device, str(model.resolve()), str(output)]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        for text in process.stdout or ():
            show(text.rstrip())
    if output.exists():
        found: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))
        return found
    detail = {"exit_code": process.returncode, "error": log.read_text(errors="replace")[-2000:]}
    lost = Check(family, "the family's process ended without a result", 1, 0, True, detail)
    show(f"{line(lost)}\n{detail['error']}")
    return [vars(lost) | {"holds": lost.holds}]


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
    """Write a report, if a file is named."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def markdown(report: dict[str, Any]) -> str:
    """Return a report as a table."""
    facts = report["provenance"]
    versions = ", ".join(f"{name} {text}" for name, text in facts["versions"].items())
    verdict = "holds" if report["holds"] else "FAILS"
    left = sum(bool(check["not_run"]) for check in report["checks"])
    lines = [
        f"# lumotree prove on {facts['device_name']}: {verdict}, {left} checks not run",
        "",
        f"{facts['date']}, {report['seconds']} s, {report['processes']} processes of",
        f"{facts['threads']} thread, {facts['model']},",
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
