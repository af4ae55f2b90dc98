"""The same component results in a fresh process: python -m benchmarks.proof.second_process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def digests_elsewhere(part: str, device: str) -> list[str]:
    """Return the digests that a fresh process finds for "gdn" or "attention"."""
    command = [sys.executable, "-m", "benchmarks.proof.second_process", part, device]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def operand_sets(rules: dict[str, Any]) -> list[tuple[str, int, float]]:
    """Return (kind, seed, scale) of every operand set."""
    calibration = [("calibration", seed, 1.0) for seed in rules["calibration_seeds"]]
    scale = rules["held_out_scale"]
    return calibration + [("held-out", seed, scale) for seed in rules["held_out_seeds"]]


def main() -> None:
    """Print a JSON list of digests."""
    import torch

    from benchmarks.proof.attention import attention_digests
    from benchmarks.proof.operands import Operands
    from benchmarks.proof.rules import read_rules

    torch.set_num_threads(1)
    part, device = sys.argv[1:3]
    rules = read_rules()[0]["components"]
    if part == "attention":
        print(json.dumps(attention_digests(rules, device)))
        return
    sets = operand_sets(rules)
    print(json.dumps([Operands(rules, *x[1:], device).tree().digest() for x in sets]))


if __name__ == "__main__":
    main()
