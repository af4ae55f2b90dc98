"""Time plain, chain-5 and hydra27 cycles of the 27B shape with random weights.

Run on a GPU: python -m benchmarks.cycle.shape27b [--lengths 4096 32768]
Random weights accept almost no draft: a cycle publishes about one node.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from benchmarks.cycle.drive import Sequence, graph_ms, random_prompt, timed_cycles
from benchmarks.cycle.shapes import random_group
from benchmarks.kernels.timing import machine, memory_rates, save
from services.contract.config import EngineConfig

ARMS = {"plain": "root", "chain-5": "chain-5", "hydra27": "hydra27"}


def measure(
    group: Any, config: EngineConfig, length: int, arm: str, generation: int
) -> dict[str, Any]:
    """Prefill a prompt and time the arm's cycles and its graphs."""
    sequence = Sequence(group, config.prefill_grid, config.context_length, generation=generation)
    start = time.perf_counter()
    sequence.start(random_prompt(length, group.vocab_size), ARMS[arm], arm == "hydra27")
    torch.cuda.synchronize()
    prefill = time.perf_counter() - start
    row = {"arm": arm, "context": length, "prefill_s": prefill, **timed_cycles(sequence, 30)}
    row["tokens_a_cycle"] = len(sequence.emitted) / sequence.cycles
    drafter, verifier, committer = group.stages
    row["target_ms"] = graph_ms(verifier.graphs)
    row["draft_ms"] = graph_ms(drafter.graphs) if arm != "plain" else {}
    row["publish_ms"] = graph_ms(committer.graphs)
    sequence.release()
    return row


def main() -> None:
    """Build the group once, then measure every arm at every length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="*", default=[4096, 32768])
    parser.add_argument("--draft-vocab", type=int, default=0)
    arguments = parser.parse_args()
    lengths = arguments.lengths
    context = max(lengths) + 1024
    config = EngineConfig(
        model="random",
        device="cuda",
        max_sequences=1,
        context_length=context,
        prefill_grid=256,
        draft_vocab=arguments.draft_vocab,
    )
    start = time.perf_counter()
    group = random_group(config)
    print(f"ready after {time.perf_counter() - start:.1f} s", flush=True)
    rows = []
    for length in lengths:
        for arm in ARMS:
            row = measure(group, config, length, arm, len(rows))
            rows.append(row)
            print(row, flush=True)
    name = f"cycle_27b_draft{arguments.draft_vocab}" if arguments.draft_vocab else "cycle_27b"
    facts = {**machine(), **memory_rates(), "draft_vocab": arguments.draft_vocab}
    save(name, {**facts, "rows": rows})


if __name__ == "__main__":
    main()
