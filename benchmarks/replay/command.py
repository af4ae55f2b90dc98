"""`lumotree replay`: recorded requests through several arms, side by side in one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.replay.arms import ARMS, DEFAULT_ARMS
from benchmarks.replay.corpus import CORPORA, CorpusRequest, check_manifest, load_corpus
from benchmarks.replay.figures import differing_texts, ratio, summarise
from benchmarks.replay.process import ArmProcess
from benchmarks.replay.run import Plan, provenance
from benchmarks.replay.run import replay as run_replay
from services.commands.options import EMBEDDED_MODEL
from services.contract.errors import InvalidField

BASES = ("plain", "chain-3", "chain-5", "chain-7", "vllm-plain", "transformers")


def replay(
    files: Annotated[list[Path] | None, typer.Argument(help="JSONL in OpenAI chat form.")] = None,
    arms: Annotated[str, typer.Option("--arms", help="Comma-separated.")] = ",".join(DEFAULT_ARMS),
    requests: Annotated[int, typer.Option("--requests", help="A corpus; 0 is all.")] = 6,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Cap of an answer.")] = 256,
    repeats: Annotated[int, typer.Option("--repeats", help="Runs of every request.")] = 3,
    seed: Annotated[int, typer.Option("--seed", help="Of all arms; -1 draws fresh ones.")] = 7,
    threads: Annotated[int, typer.Option("--threads", help="CPU threads of an engine.")] = 2,
    model: Annotated[Path, typer.Option("--model", help="Checkpoint folder.")] = EMBEDDED_MODEL,
    output: Annotated[Path | None, typer.Option("--output", help="JSON file to write.")] = None,
) -> None:
    """Replay requests through several arms and print rates, acceptance and ratios."""
    names = arms.split(",")
    _check_arms(names)
    hashes = {} if files else check_manifest()
    corpora = files or sorted(CORPORA.glob("astropy_*.jsonl"))
    asked = [r for file in corpora for r in load_corpus(file, model, requests)]
    plan = Plan(max_tokens, repeats, None if seed < 0 else seed)
    records = _run(names, asked, plan, model, threads)
    report = make_report(names, records, provenance(plan, hashes, threads))
    if output is not None:
        output.write_text(json.dumps(report, indent=1), encoding="utf-8")
    show(report)
    if plan.seed is not None and report["differing_texts"]:
        raise typer.Exit(1)


def _check_arms(names: list[str]) -> None:
    for name in names:
        if name not in ARMS:
            text = f"{name!r} is not an arm; known are {', '.join(ARMS)}"
            raise InvalidField("UNKNOWN_ARM", text, "arms")


def _run(
    names: list[str], asked: list[CorpusRequest], plan: Plan, model: Path, threads: int
) -> list[dict[str, Any]]:
    options = {"model": str(model), "threads": threads}
    running: list[ArmProcess] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    try:
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
            task = bar.add_task("loading", total=len(asked) * len(names) * plan.repeats)
            for name in names:
                running.append(ArmProcess(ARMS[name], {"arm": name, **options}))
            for process in running:
                process.ask(_warm_up(asked[0]))

            def advance(arm: str, record: dict[str, Any]) -> None:
                bar.update(task, advance=1, description=f"{arm} {record['request']}")

            return run_replay(running, asked, plan, advance)
    finally:
        for process in running:
            process.close()


def _warm_up(request: CorpusRequest) -> dict[str, Any]:
    return {
        "token_ids": request.token_ids[:300],
        "max_tokens": 16,
        "sampling": {"temperature": 0.0, "seed": 1},
        "tenant": "warm-up",
    }


def make_report(
    names: list[str], records: list[dict[str, Any]], source: dict[str, Any]
) -> dict[str, Any]:
    """Return figures by arm, for each corpus and pooled, with the records they came from."""
    corpora = sorted({record["corpus"] for record in records})
    exact = [name for name in names if ARMS[name].is_exact]
    figures = {
        corpus: {name: summarise(_of(records, name, corpus)) for name in names}
        for corpus in (*corpora, "all")
    }
    ratios = [
        ratio(records, name, base)
        for base in BASES
        if base in names
        for name in names
        if name != base
    ]
    return {
        "provenance": source,
        "arms": {name: {"is_exact": ARMS[name].is_exact} for name in names},
        "figures": figures,
        "ratios": ratios,
        "differing_texts": differing_texts(records, exact),
        "records": records,
    }


def _of(records: list[dict[str, Any]], arm: str, corpus: str) -> list[dict[str, Any]]:
    return [r for r in records if r["arm"] == arm and corpus in (r["corpus"], "all")]


def show(report: dict[str, Any]) -> None:
    """Print a report's tables."""
    console = Console()
    for corpus, arms in report["figures"].items():
        table = Table(title=corpus, title_justify="left", box=None, pad_edge=False)
        for column in ("arm", "tokens/s", "range", "accepted/cycle", "ms/cycle"):
            table.add_column(column, justify="left" if column == "arm" else "right")
        for name, figures in arms.items():
            low, high = figures["range"]
            table.add_row(
                name + ("" if report["arms"][name]["is_exact"] else " *"),
                f"{figures['tokens_per_second']:.1f}",
                f"{low:.1f}-{high:.1f}",
                f"{figures['accepted_drafts_per_cycle']:.2f}",
                f"{figures['ms_per_cycle'].get('round', 0.0):.2f}",
            )
        console.print(table)
    console.print("* not bit-comparable with the exact arms", style="dim")
    for entry in report["ratios"]:
        low, high = entry["interval_95"]
        console.print(
            f"{entry['arm']} : {entry['base']} = {entry['ratio']:.2f} ({low:.2f}-{high:.2f})"
        )
    console.print(f"requests whose texts differ between exact arms: {report['differing_texts']}")
