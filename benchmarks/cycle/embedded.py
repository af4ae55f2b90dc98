"""Tokens per second of the embedded model on a GPU: plain, chain-5, hydra27, adaptive.

Run on a GPU: python -m benchmarks.cycle.embedded. The gate: every arm gives the same tokens.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.cycle.drive import graph_ms
from benchmarks.kernels.timing import machine, save
from services.commands.options import EMBEDDED_MODEL
from services.contract.config import EngineConfig
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.gateway.engine import Engine
from services.gateway.requests import GenerationRequest

ARMS = {"plain": "root", "chain-5": "chain-5", "hydra27": "hydra27", "adaptive": "adaptive"}
PROMPTS = Path(__file__).resolve().parents[1] / "data" / "code_prompts.json"
SAMPLINGS = {"greedy": SamplingParams(), "sampled": SamplingParams(0.6, 0.95, 20, seed=7)}


def run_arm(
    engine: Engine, arm: str, sampling: SamplingParams, texts: list[str], most: int
) -> dict[str, Any]:
    """Generate every prompt; return the tokens, the rate and where the time went."""
    tokens, seconds, cycles, spans = [], 0.0, 0, {}
    for index, text in enumerate(texts):
        prompt = tuple(engine.codec.encode(text))[-1024:]
        request = GenerationRequest(
            engine.next_request_id(),
            prompt,
            sampling,
            Budget(most, context_length=engine.config.context_length),
            # A tenant of its own: no arm may draft from another arm's answer.
            Drafting(
                ARMS[arm],
                "mtp",
                arm in ("hydra27", "adaptive"),
                f"{arm}-{sampling.temperature}-{most}-{index}",
            ),
            print,
        )
        done = engine.generate(request)
        tokens.append(done.finished.token_ids)
        seconds += done.finished.timing.decode_ms / 1e3
        cycles += len(done.deltas)
        for name, value in done.finished.spans_ms.items():
            spans[name] = spans.get(name, 0.0) + value
    count = sum(len(row) for row in tokens)
    return {
        "arm": arm,
        "tokens": tokens,
        "tokens_per_s": count / seconds,
        "tokens_a_cycle": count / cycles,
        "cycle_ms": 1e3 * seconds / cycles,
        "spans_ms_a_cycle": {name: value / cycles for name, value in spans.items()},
    }


def main() -> None:
    """Run every arm; store figures only if all give the same tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=256)
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
        for arm in ARMS:
            run_arm(engine, arm, sampling, texts[:1], 32)
            rows.append(
                {"sampling": name, **run_arm(engine, arm, sampling, texts, arguments.tokens)}
            )
            print({key: value for key, value in rows[-1].items() if key != "tokens"}, flush=True)
        group = [row for row in rows if row["sampling"] == name]
        different = [row["arm"] for row in group if row["tokens"] != group[0]["tokens"]]
        if different:
            raise SystemExit(f"{name}: {different} differ from plain; no figures are stored")
    graphs = {stage.name: graph_ms(stage.graphs) for stage in engine.group.stages}
    print(graphs, flush=True)
    kept = [{key: value for key, value in row.items() if key != "tokens"} for row in rows]
    torch.cuda.synchronize()
    save("cycle_embedded", {**machine(), "rows": kept, "graph_ms": graphs})


if __name__ == "__main__":
    main()
