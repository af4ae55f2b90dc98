"""`lumotree bench`: prompt and decode rates at depths, or cycle times of a shape on a GPU."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.bench.measure import Measure, longest_prompt
from benchmarks.bench.table import read_rates, show
from benchmarks.replay.arms import ARMS
from benchmarks.replay.run import Plan, provenance
from benchmarks.replay.worker import WorkerOptions, engine_config
from services.commands.options import EMBEDDED_MODEL
from services.contract.errors import InvalidField
from services.contract.limits import MAX_CONTEXT, PAGE
from services.gateway.engine import Engine

# Arms that differ in the request alone: all run in one engine.
_ARMS = [n for n, a in ARMS.items() if a.is_exact and a.runtime == "inproc" and not a.changes]
SHAPE, DEPTHS, LENGTHS = "qwen3.5-27b", "0,1024,4096", "4096,32768,65536"


def bench(
    arms: Annotated[str, typer.Option("--arms", help="Comma-separated exact arms.")] = (
        "plain,chain-5,hydra27,adaptive"
    ),
    prompt: Annotated[
        str, typer.Option("-p", "--prompt-tokens", help="Prompt sizes, comma-separated.")
    ] = "512",
    tokens: Annotated[
        int, typer.Option("-n", "--tokens", min=32, max=1024, help="Tokens of a decode test.")
    ] = 128,
    depths: Annotated[
        str,
        typer.Option("-d", "--depths", help=f"Comma-separated; {DEPTHS}, of a shape {LENGTHS}."),
    ] = "",
    repeats: Annotated[int, typer.Option("-r", "--repeats", min=1, help="Runs of a test.")] = 3,
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
        lengths = _ints(depths or LENGTHS, "-d", 1, MAX_CONTEXT)
        _time_shape(shape, random_weights, device, lengths, draft_vocab, as_json)
        return
    names = arms.split(",")
    for name in names:
        if name not in _ARMS:
            text = f"{name!r} is not an arm here; known are {', '.join(_ARMS)}"
            raise InvalidField("UNKNOWN_ARM", text, "arms")
    earlier = None if compare is None else read_rates(compare)
    ids = longest_prompt(model)
    sizes = _ints(prompt, "-p", 1, len(ids))
    lengths = _ints(depths or DEPTHS, "-d", 0, len(ids))
    options = WorkerOptions("", str(model), threads, len(ids) + tokens + PAGE, device)
    engine = Engine.open(engine_config(ARMS[names[0]], options))
    try:
        measure = Measure(engine, ids, repeats)
        measure.gate(names)
        rows = [*measure.prompts(sizes)]
        for name in names:
            rows += measure.decodes(name, lengths, tokens)
    finally:
        engine.close()
    source = provenance(Plan(tokens, repeats, 0), {}, threads)
    if as_json:
        print(json.dumps({"provenance": source, "rows": [asdict(row) for row in rows]}))
    else:
        show(rows, source, earlier)


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


def _ints(text: str, flag: str, least: int, most: int) -> list[int]:
    """Return the numbers of a list, all within the prompt at hand."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(least <= value <= most for value in values):
        text = f"{text!r}; use comma-separated integers from {least} to {most}"
        raise InvalidField("NOT_IN_RANGE", text, flag)
    return values
