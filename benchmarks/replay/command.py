"""`lumotree replay`: recorded requests through several arms, side by side in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.replay.arms import ARMS, DEFAULT_ARMS, GROUPS, named
from benchmarks.replay.corpus import CORPORA, CorpusRequest, check_manifest, load_corpus
from benchmarks.replay.outcome import make_report
from benchmarks.replay.process import ArmEnded, ArmProcess
from benchmarks.replay.run import Outcome, Plan, asked, provenance
from benchmarks.replay.run import replay as run_replay
from benchmarks.replay.table import show
from services.commands.options import EMBEDDED_MODEL
from services.contract.errors import InvalidField

_KNOWN = f"all, {', '.join((*GROUPS, *ARMS))}"
_ARMS_HELP = f"Comma-separated arms or groups: {_KNOWN}."
_WRITE_EVERY_S = 30.0
# About the mean answer to the corpora at a cap of 1,024; of use for the estimate alone.
_ANSWER = 150


def replay(
    files: Annotated[list[Path] | None, typer.Argument(help="JSONL in OpenAI chat form.")] = None,
    arms: Annotated[str, typer.Option("--arms", help=_ARMS_HELP)] = ",".join(DEFAULT_ARMS),
    requests: Annotated[int, typer.Option("--requests", help="A corpus; 0 is all.")] = 6,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Cap of an answer.")] = 256,
    repeats: Annotated[int, typer.Option("--repeats", help="Runs of every request.")] = 3,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all arms.")] = 7,
    unseeded: Annotated[bool, typer.Option("--unseeded", help="A fresh seed a request.")] = False,
    threads: Annotated[int, typer.Option("--threads", help="CPU threads of an engine.")] = 2,
    model: Annotated[Path, typer.Option("--model", help="Checkpoint folder.")] = EMBEDDED_MODEL,
    output: Annotated[Path | None, typer.Option("--output", help="JSON file to write.")] = None,
) -> None:
    """Replay requests through several arms and print rates, acceptance and ratios."""
    names = _known(arms)
    hashes = {} if files else check_manifest()
    corpora = files or sorted(CORPORA.glob("astropy_*.jsonl"))
    chosen = [r for file in corpora for r in load_corpus(file, model, requests)]
    plan = Plan(max_tokens, repeats, None if unseeded else seed)
    outcome, source = Outcome(), provenance(plan, hashes, threads)
    try:
        with _started(names, {"model": str(model), "threads": threads}, outcome) as running:
            _run(running, chosen, plan, outcome, lambda: _write(outcome, source, output))
    finally:
        report = _write(outcome, source, output)
    show(report)
    if plan.seed is not None and report["differing_texts"]:
        raise typer.Exit(1)
    if any(ARMS[name].is_exact for name in outcome.failures):
        raise typer.Exit(1)


def _known(arms: str) -> tuple[str, ...]:
    try:
        names = named(arms)
    except KeyError as error:
        text = f"{error} is not an arm; known are {_KNOWN}"
        raise InvalidField("UNKNOWN_ARM", text, "arms") from None
    missing = [n for n in names if ARMS[n].python and not Path(ARMS[n].python).exists()]
    if missing:
        text = f"{', '.join(missing)} need .peers; run make peers, or leave them out"
        raise InvalidField("NO_PEERS", text, "arms")
    return names


@contextmanager
def _started(
    names: tuple[str, ...], options: dict[str, Any], outcome: Outcome
) -> Iterator[list[ArmProcess]]:
    """Start a process an arm; note those that end at once."""
    running: list[ArmProcess] = []
    try:
        for name in names:
            try:
                running.append(ArmProcess(ARMS[name], {"arm": name, **options}))
            except ArmEnded as error:
                outcome.failures[name] = f"{error} (at its start)"
        yield running
    finally:
        for process in running:
            process.close()


def _run(
    running: list[ArmProcess],
    chosen: list[CorpusRequest],
    plan: Plan,
    outcome: Outcome,
    write: Callable[[], object],
) -> None:
    console = Console(stderr=True)
    seconds = _estimate(running, chosen, plan, outcome)
    count = len(chosen) * plan.repeats
    console.print(f"{len(running)} arms x {count} answers, about {seconds / 60:.1f} minutes")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task, written = bar.add_task("", total=len(running) * count), time.monotonic()

        def advance(arm: str, request: str) -> None:
            nonlocal written
            bar.update(task, advance=1, description=f"{arm} {request}")
            if time.monotonic() - written > _WRITE_EVERY_S:
                write()
                written = time.monotonic()

        run_replay(running, chosen, plan, outcome, advance)


def _estimate(
    running: list[ArmProcess], chosen: list[CorpusRequest], plan: Plan, outcome: Outcome
) -> float:
    """Warm every arm up; return the seconds that all answers take at its rates then."""
    prompts, seconds = sum(len(r.token_ids) for r in chosen) * plan.repeats, 0.0
    later = len(chosen) * plan.repeats * min(plan.max_tokens, _ANSWER)
    for process in running:
        try:
            for tokens in (16, 64):
                request = asked(chosen[0].token_ids[:1000], replace(plan, max_tokens=tokens), "")
                facts = process.ask(request)
        except ArmEnded as error:
            outcome.failures[process.arm.name] = f"{error} (at its warm-up)"
            continue
        seconds += prompts / facts["prompt_tokens"] * facts["prefill_ms"] / 1e3
        seconds += later / max(1, len(facts["token_ids"]) - 1) * facts["decode_ms"] / 1e3
    return seconds


def _write(outcome: Outcome, source: dict[str, Any], output: Path | None) -> dict[str, Any]:
    report = make_report(outcome, source)
    if output is not None:
        output.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return report
