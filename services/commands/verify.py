"""`lumotree verify`: tree and chain decoding against plain decoding, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from services.commands import options as opt
from services.commands.loading import DEFAULT_CONTEXT, DEFAULT_THREADS, local_config, open_engine
from services.commands.prompts import Prompt, load_prompts
from services.contract.sampling import Drafting
from services.gateway.engine import Engine, Generation
from services.gateway.requests import Event, GenerationRequest

ARMS = (("chain", "chain-5"), ("tree", "hydra27"), ("tree", "adaptive"))
SAMPLINGS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {
        "temperature": 0.8,
        "top_p": 1.0,
        "top_k": 20,
        "min_p": 0.05,
        "presence_penalty": 1.0,
    },
}
SEED = 20_260_930


@dataclass(slots=True)
class ArmReport:
    """What one arm under one sampling showed against plain decoding."""

    mode: str
    shape: str
    sampling: str
    prompts: int = 0
    cycles: int = 0
    tokens: int = 0
    token_mismatches: int = 0
    digest_mismatches: int = 0

    def add(self, plain: Generation, other: Generation) -> None:
        """Count one prompt: tokens at differing places, digests at equal lengths."""
        self.prompts += 1
        self.cycles += other.finished.speculation.num_spec_steps
        self.tokens += len(other.finished.token_ids)
        self.token_mismatches += _differing(plain.finished.token_ids, other.finished.token_ids)
        digests = {delta.committed_length: delta.digest for delta in plain.deltas}
        self.digest_mismatches += sum(
            delta.digest is None or digests.get(delta.committed_length) != delta.digest
            for delta in other.deltas
        )


def verify(
    model: opt.Model = opt.EMBEDDED_MODEL,
    prompts: Annotated[int, typer.Option("--prompts", help="Prompts to use.")] = 20,
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens a prompt.")] = 256,
    files: Annotated[
        list[Path] | None, typer.Option("--prompt-file", help="JSON or JSONL; repeatable.")
    ] = None,
    threads: opt.Threads = DEFAULT_THREADS,
    max_model_len: opt.Context = DEFAULT_CONTEXT + 512,
    dtype: opt.Dtype = "auto",
    as_json: opt.Json = False,
) -> None:
    """Compare chain-5, hydra27 and adaptive with plain decoding: every token, every digest.

    Exit code 1 if a token or a digest differs.
    """
    with open_engine(
        local_config(model, threads, max_model_len, dtype=dtype), quiet=as_json
    ) as engine:
        chosen = load_prompts(engine, files or sorted(opt.PROMPTS.glob("*.json*")), prompts)
        console = Console(stderr=True, quiet=as_json)
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task("verify", total=len(chosen) * len(SAMPLINGS))
            reports = compare(engine, chosen, tokens, lambda: bar.advance(task))
    _print(reports, as_json)
    if any(report.token_mismatches or report.digest_mismatches for report in reports):
        raise typer.Exit(1)


def compare(
    engine: Engine, prompts: list[Prompt], tokens: int, advance: Callable[[], None]
) -> list[ArmReport]:
    """Return a report for every arm and sampling."""
    reports = [ArmReport(mode, shape, name) for name in SAMPLINGS for mode, shape in ARMS]
    for prompt in prompts:
        for name in SAMPLINGS:
            plain = _run(engine, prompt, tokens, name, "root")
            for report in reports:
                if report.sampling == name:
                    report.add(plain, _run(engine, prompt, tokens, name, report.shape))
            advance()
    return reports


def _run(engine: Engine, prompt: Prompt, tokens: int, sampling: str, shape: str) -> Generation:
    values: dict[str, Any] = {**SAMPLINGS[sampling], "seed": SEED}
    request = GenerationRequest(
        request_id=engine.next_request_id(),
        prompt_ids=prompt.token_ids,
        sampling=engine.defaults.resolve_sampling(values),
        budget=engine.defaults.resolve_budget(len(prompt.token_ids), tokens),
        drafting=Drafting(shape=shape, suffix=shape not in ("root", "chain-5"), tenant=shape),
        sink=_ignore,
        wants_digest=True,
    )
    return engine.generate(request)


def _ignore(event: Event) -> None:
    del event


def _differing(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=False)) + abs(len(one) - len(other))


def _print(reports: list[ArmReport], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"seed": SEED, "arms": [asdict(report) for report in reports]}))
        return
    table = Table(title="against plain decoding", title_justify="left", box=None)
    for name in asdict(reports[0]):
        table.add_column(name.replace("_", " "), justify="right")
    for report in reports:
        table.add_row(*map(str, asdict(report).values()))
    Console().print(table)
