"""Time plain, chain-5 and hydra27 cycles of the 27B shape with random weights.

Run on a GPU: python -m benchmarks.cycle.shape27b [--lengths 4096 32768] [--draft-vocab 65536]
The gate comes first: the arms' tokens behind a short prompt are equal, or nothing is timed.
Random weights accept almost no draft: a cycle publishes about one node.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence as Several
from typing import Any

import torch

from benchmarks.cycle.drive import Sequence, graph_ms, publication_ms, random_prompt, timed_cycles
from benchmarks.cycle.shapes import RandomGroup, random_group
from benchmarks.kernels.timing import machine, memory_rates, save
from services.contract.config import EngineConfig
from services.contract.errors import UnavailableError

ARMS = {"plain": "root", "chain-5": "chain-5", "hydra27": "hydra27"}
GATE_PROMPT, GATE_TOKENS = 600, 12
PASSES = 5


def start(built: RandomGroup, arm: str, length: int) -> Sequence:
    """Return a sequence of the arm behind a made-up prompt."""
    config, built.generation = built.config, built.generation + 1
    sequence = Sequence(
        built.group, config.prefill_grid, config.context_length, generation=built.generation
    )
    sequence.start(random_prompt(length, built.group.vocab_size), ARMS[arm], arm == "hydra27")
    return sequence


def gate(built: RandomGroup) -> None:
    """Raise UnavailableError unless every arm gives the same tokens."""
    found = {}
    for arm in ARMS:
        sequence = start(built, arm, GATE_PROMPT)
        while len(sequence.emitted) < GATE_TOKENS:
            sequence.cycle()
        found[arm] = sequence.emitted[:GATE_TOKENS]
        sequence.release()
    if len({tuple(tokens) for tokens in found.values()}) > 1:
        raise UnavailableError("GATE", f"the arms' tokens differ, nothing was timed: {found}")


def measure(built: RandomGroup, length: int, arm: str) -> dict[str, Any]:
    """Prefill a prompt and time the arm's cycles and its graphs.

    Returns one row; spans_ms holds target (forward), draft (its passes), publish, step (wall) and
            dispatch: what of a step is neither target nor draft.
    """
    begun = time.perf_counter()
    sequence = start(built, arm, length)
    torch.cuda.synchronize()
    row = {"arm": arm, "context": length, "prefill_s": time.perf_counter() - begun}
    row |= timed_cycles(sequence, 30)
    row["tokens_a_cycle"] = len(sequence.emitted) / sequence.cycles
    drafter, verifier, committer = built.group.stages
    publish = publication_ms(sequence, built.words, committer.graphs)
    graphs = graph_ms(verifier.graphs)
    passes = graph_ms(drafter.graphs) if arm != "plain" else {}
    target = graphs["('forward', 1)"]
    spans = {"target": target, "draft": sum(passes.values()), "publish": publish}
    spans["step"] = row["step_ms"]
    spans["dispatch"] = spans["step"] - spans["target"] - spans["draft"]
    row["spans_ms"] = spans
    row["graph_ms"] = graphs | passes
    sequence.release()
    return row


def run(lengths: Several[int], draft_vocab: int) -> dict[str, Any]:
    """Build the group once, check it, then measure every arm at every length."""
    config = EngineConfig(
        model="random",
        device="cuda",
        max_sequences=1,
        context_length=max(lengths) + 1024,
        prefill_grid=256,
        draft_vocab=draft_vocab,
    )
    begun = time.perf_counter()
    built = random_group(config)
    facts = {**machine(), **memory_rates(), "draft_vocab": draft_vocab}
    facts |= {"weights_gb": built.weights_gb, "ready_s": time.perf_counter() - begun}
    gate(built)
    rows = [measure(built, length, arm) for length in lengths for arm in ARMS]
    for row in rows:
        plain = next(r for r in rows if (r["arm"], r["context"]) == ("plain", row["context"]))
        row["against_plain"] = row["step_ms"] / plain["step_ms"]
    floor = built.weights_gb / facts["read_tb_s"]
    return {**facts, "weight_read_ms": floor, "rows": rows}


def table(result: dict[str, Any]) -> list[str]:
    """Return one line a row: spans in ms, and the step against plain and the weight read."""
    lines = ["arm       context  target   draft publish dispatch    step  /plain  /weights"]
    for row in result["rows"]:
        spans = row["spans_ms"]
        cells = " ".join(
            f"{spans[n]:7.2f}" for n in ("target", "draft", "publish", "dispatch", "step")
        )
        read = row["step_ms"] / result["weight_read_ms"]
        head = f"{row['arm']:8} {row['context']:8}"
        lines.append(f"{head} {cells} {row['against_plain']:7.3f} {read:8.3f}")
    return lines


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="*", default=[4096, 32768])
    parser.add_argument("--draft-vocab", type=int, default=0)
    arguments = parser.parse_args()
    result = run(arguments.lengths, arguments.draft_vocab)
    print("\n".join(table(result)), flush=True)
    name = f"cycle_27b_draft{arguments.draft_vocab}" if arguments.draft_vocab else "cycle_27b"
    save(name, result)


if __name__ == "__main__":
    main()
