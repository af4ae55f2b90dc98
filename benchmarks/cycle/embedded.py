"""Tokens per second of the embedded model on a GPU: plain, chain-5, hydra27, adaptive.

Run on a GPU: python -m benchmarks.cycle.embedded. The gate: every run gives the same tokens.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.cycle.drive import graph_ms
from benchmarks.kernels.timing import machine, save
from services.commands.options import EMBEDDED_MODEL
from services.contract.config import EngineConfig
from services.contract.errors import UnavailableError
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.gateway.engine import Engine
from services.gateway.requests import GenerationRequest

ARMS = {"plain": "root", "chain-5": "chain-5", "hydra27": "hydra27", "adaptive": "adaptive"}
PROMPTS = Path(__file__).resolve().parents[1] / "data" / "code_prompts.json"
SAMPLINGS = {"greedy": SamplingParams(), "sampled": SamplingParams(0.6, 0.95, 20, seed=7)}


def run_arm(
    engine: Engine, arm: str, sampling: SamplingParams, texts: list[str], most: int
) -> dict[str, Any]:
    """Generate every prompt; return the tokens, the rate and where the time went.

    Numbers the rate leaves out each prompt's first cycle, its time and all its tokens.
    """
    tokens, seconds, cycles, first, spans = [], 0.0, 0, 0, {}
    for text in texts:
        done = engine.generate(_request(engine, arm, sampling, text, most))
        tokens.append(done.finished.token_ids)
        seconds += done.finished.timing.decode_ms / 1e3
        cycles += len(done.deltas)
        first += len(done.deltas[0].token_ids)
        for name, value in done.finished.spans_ms.items():
            spans[name] = spans.get(name, 0.0) + value
    count = sum(len(row) for row in tokens)
    return {
        "tokens": tokens,
        "tokens_per_s": (count - first) / seconds,
        "tokens_a_cycle": count / cycles,
        "cycle_ms": 1e3 * seconds / (cycles - len(texts)),
        "spans_ms_a_cycle": {name: value / cycles for name, value in spans.items()},
    }


def _request(
    engine: Engine, arm: str, sampling: SamplingParams, text: str, most: int
) -> GenerationRequest:
    prompt = tuple(engine.codec.encode(text))[-1024:]
    budget = Budget(most, context_length=engine.config.context_length)
    identity = engine.next_request_id()
    # A tenant of its own: no arm or repeat may draft from an earlier answer.
    drafting = Drafting(ARMS[arm], "mtp", arm in ("hydra27", "adaptive"), identity)
    return GenerationRequest(identity, prompt, sampling, budget, drafting, print)


def measure(
    engine: Engine, sampling: SamplingParams, texts: list[str], most: int, repeats: int
) -> list[dict[str, Any]]:
    """Run every arm, in rotating order; return a row an arm: its median repeat and the range.

    Raises  UnavailableError if any run gave other tokens.
    """
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
    names = list(ARMS)
    for arm in names:
        run_arm(engine, arm, sampling, texts[:1], 32)
    for repeat in range(repeats):
        turn = repeat % len(names)
        for arm in names[turn:] + names[:turn]:
            runs[arm].append(run_arm(engine, arm, sampling, texts, most))
    wanted = runs[names[0]][0]["tokens"]
    other = [arm for arm, found in runs.items() if any(run["tokens"] != wanted for run in found)]
    if other:
        raise UnavailableError("GATE", f"{other} differ from plain; no figures are stored")
    return [_row(arm, found) for arm, found in runs.items()]


def _row(arm: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    ordered = sorted(runs, key=lambda run: run["tokens_per_s"])
    kept = {key: value for key, value in ordered[len(runs) // 2].items() if key != "tokens"}
    ends = [run["tokens_per_s"] for run in (ordered[0], ordered[-1])]
    return {"arm": arm, **kept, "range_tokens_per_s": ends, "repeats": len(runs)}


def main() -> None:
    """Run every arm; store figures only if all give the same tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    config = EngineConfig(
        model=str(EMBEDDED_MODEL), device="cuda", max_sequences=1, context_length=4096
    )
    start = time.perf_counter()
    engine = Engine.open(config)
    print(f"ready after {time.perf_counter() - start:.1f} s", flush=True)
    texts = [row["prompt"] for row in json.loads(PROMPTS.read_text())][: arguments.prompts]
    rows = []
    for name, sampling in SAMPLINGS.items():
        for row in measure(engine, sampling, texts, arguments.tokens, arguments.repeats):
            rows.append({"sampling": name, **row})
            print(rows[-1], flush=True)
    graphs = {stage.name: graph_ms(stage.graphs) for stage in engine.group.stages}
    save("cycle_embedded", {**machine(), "rows": rows, "graph_ms": graphs})


if __name__ == "__main__":
    main()
