"""`lumotree bench`: prompt and decode rates at depths, or cycle times of a shape on a GPU."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.replay.arms import ARMS
from benchmarks.replay.corpus import CORPORA, load_corpus
from benchmarks.replay.run import Plan, provenance
from benchmarks.replay.worker import WorkerOptions, answer, engine_config
from services.commands.options import EMBEDDED_MODEL
from services.contract.errors import InvalidField
from services.gateway.engine import Engine

GATE_TOKENS = 48
# Arms that differ in the request alone: all run in one engine.
_ARMS = [n for n, a in ARMS.items() if a.is_exact and a.runtime == "inproc" and not a.changes]
SHAPE, DEPTHS, LENGTHS = "qwen3.5-27b", "0,1024,4096", "4096,32768,65536"


@dataclass(frozen=True, slots=True)
class Row:
    """One test: pp = prompt tokens processed, tg = tokens generated behind `depth` tokens."""

    arm: str
    test: str
    tokens_per_second: float
    deviation: float
    accepted_drafts_per_cycle: float

    @property
    def key(self) -> tuple[str, str]:
        """Identity when two runs are compared."""
        return self.arm, self.test


def bench(
    arms: Annotated[str, typer.Option("--arms", help="Comma-separated exact arms.")] = (
        "plain,chain-5,hydra27,adaptive"
    ),
    prompt: Annotated[str, typer.Option("-p", "--prompt-tokens")] = "512",
    generate: Annotated[int, typer.Option("-n", "--tokens")] = 128,
    depths: Annotated[
        str,
        typer.Option("-d", "--depths", help=f"Comma-separated; {DEPTHS}, of a shape {LENGTHS}."),
    ] = "",
    repeats: Annotated[int, typer.Option("-r", "--repeats")] = 3,
    model: Annotated[Path, typer.Option("--model", help="Checkpoint folder.")] = EMBEDDED_MODEL,
    threads: Annotated[int, typer.Option("--threads")] = 2,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or cuda:N.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    compare: Annotated[
        Path | None, typer.Option("--compare", help="JSON of an earlier run.")
    ] = None,
    shape: Annotated[str, typer.Option("--config", help=f"A shape to time: {SHAPE}.")] = "",
    random_weights: Annotated[bool, typer.Option("--random-weights")] = False,
    draft_vocab: Annotated[int, typer.Option("--draft-vocab", help="Of a shape; 0: all.")] = 0,
) -> None:
    """Measure prompt and decode rates; prints nothing if the arms' texts differ.

    With --config and --random-weights, time plain, chain-5 and hydra27 cycles of that shape.
    """
    if shape or random_weights:
        _time_shape(shape, random_weights, device, _ints(depths or LENGTHS), draft_vocab, as_json)
        return
    names = arms.split(",")
    for name in names:
        if name not in _ARMS:
            text = f"{name!r} is not an arm here; known are {', '.join(_ARMS)}"
            raise InvalidField("UNKNOWN_ARM", text, "arms")
    text = _long_text(model)
    options = WorkerOptions("", str(model), threads, len(text) + 1024, device)
    engine = Engine.open(engine_config(ARMS[names[0]], options))
    try:
        _gate(engine, names, text)
        rows = [*_prompt_rows(engine, text, _ints(prompt), repeats)]
        for name in names:
            rows += _decode_rows(engine, name, text, _ints(depths or DEPTHS), generate, repeats)
    finally:
        engine.close()
    _report(rows, provenance(Plan(generate, repeats, 1), {}, threads), as_json, compare)


def _time_shape(
    shape: str, random_weights: bool, device: str, lengths: list[int], ids: int, as_json: bool
) -> None:
    if shape != SHAPE or not random_weights:
        text = f"--config {shape or 'missing'}; use --config {SHAPE} --random-weights together"
        raise InvalidField("SHAPE", text, "--config")
    if device != "cuda":
        raise InvalidField("DEVICE", f"{device}: a shape is timed with --device cuda", "--device")
    from benchmarks.cycle import shape27b

    result = shape27b.run(lengths, ids)
    print(json.dumps(result) if as_json else "\n".join(shape27b.table(result)))


def _gate(engine: Engine, names: list[str], text: list[int]) -> None:
    """Refuse to time arms whose texts differ."""
    found = {n: tuple(_run(engine, n, text[:300], GATE_TOKENS)["token_ids"]) for n in names}
    if len(set(found.values())) > 1:
        raise InvalidField("GATE", "the arms' texts differ; run lumotree verify", "arms")


def _prompt_rows(engine: Engine, text: list[int], sizes: list[int], repeats: int) -> Iterator[Row]:
    for size in sizes:
        rates = []
        for _ in range(repeats):
            result = _run(engine, "plain", text[:size], 1)
            rates.append(size / (result["prefill_ms"] / 1e3))
        yield _row("-", f"pp{size}", rates, 0.0)


def _decode_rows(
    engine: Engine, name: str, text: list[int], depths: list[int], tokens: int, repeats: int
) -> Iterator[Row]:
    for depth in depths:
        results = [_run(engine, name, text[: max(depth, 1)], tokens) for _ in range(repeats)]
        rates = [
            (len(r["token_ids"]) - r["first_tokens"]) / (r["decode_ms"] / 1e3) for r in results
        ]
        accepted = sum(r["accepted"] for r in results) / sum(r["cycles"] for r in results)
        yield _row(name, f"tg{tokens} @ {depth}", rates, accepted)


def _run(engine: Engine, name: str, prompt: list[int], tokens: int) -> dict[str, Any]:
    return answer(
        engine,
        ARMS[name],
        {
            "token_ids": prompt,
            "max_tokens": tokens,
            "sampling": {"temperature": 0.0, "seed": 1},
            "tenant": engine.next_request_id(),
        },
    )


def _row(arm: str, test: str, rates: list[float], accepted: float) -> Row:
    deviation = statistics.stdev(rates) if len(rates) > 1 else 0.0
    return Row(arm, test, statistics.mean(rates), deviation, accepted)


def _long_text(model: Path) -> list[int]:
    """Return the ids of the corpora's longest prompts, one after the other."""
    requests = load_corpus(sorted(CORPORA.glob("astropy_*.jsonl"))[0], model, 0)
    return list(max((request.token_ids for request in requests), key=len))


def _ints(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidField("NOT_AN_INTEGER", f"{text!r} is not a list of integers", "-d") from None


def _report(rows: list[Row], source: dict[str, Any], as_json: bool, compare: Path | None) -> None:
    if as_json:
        print(json.dumps({"provenance": source, "rows": [asdict(row) for row in rows]}))
        return
    earlier = _earlier(compare)
    table = Table(title="lumotree bench", title_justify="left", box=None, pad_edge=False)
    for column in ("arm", "test", "tokens/s", "accepted/cycle", *(["against"] if earlier else [])):
        table.add_column(column, justify="left" if column in ("arm", "test") else "right")
    for row in rows:
        cells = [row.arm, row.test, f"{row.tokens_per_second:.1f} ± {row.deviation:.1f}"]
        cells.append(f"{row.accepted_drafts_per_cycle:.2f}")
        if earlier:
            base = earlier.get(row.key)
            cells.append(f"{row.tokens_per_second / base:.2f}x" if base else "-")
        table.add_row(*cells)
    Console().print(table)
    Console().print(f"{source['processor']}, {source['threads']} threads, {source['date']}")


def _earlier(file: Path | None) -> dict[tuple[str, str], float]:
    if file is None:
        return {}
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return {(row["arm"], row["test"]): row["tokens_per_second"] for row in rows}
