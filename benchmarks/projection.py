"""Project tokens/s of the 27B shape: measured step times joined with measured acceptance.

Run as: python -m benchmarks.projection FOLDER. Reads results/cycle_27b*.json (an H200's step
times, random weights) and results/replay.json (tokens a cycle of the embedded model on recorded
requests), and bytes for a GB10. Every figure it writes is a projection and says so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
ARMS = ("plain", "chain-5", "hydra27")
# GB10: mixed read and write rate that the paper's own figures imply, and its reading rate.
GB10_TB_S = (0.222, 0.240)
# Bytes a pass reads, GB: text layers and head of the 27B shape (51.2 bf16; 17.6 mixed NVFP4/FP8),
# one MTP pass with the whole head, and with 65,536 ids of it.
WEIGHTS = {
    "bf16": {"target": 51.2, "pass": 0.85 + 2.54, "pass_64k": 0.85 + 0.67},
    "NVFP4/FP8": {"target": 17.6, "pass": 0.85 + 0.72, "pass_64k": 0.85 + 0.19},
}
STATE_GB = {"verify": 0.195, "publish": 0.306}


def main() -> None:
    """Write both pages."""
    folder = Path(sys.argv[1])
    replay = json.loads((RESULTS / "replay.json").read_text(encoding="utf-8"))
    tokens = {
        arm: replay["figures"]["all"][arm]["tokens_per_cycle"]
        for arm in ARMS
        if arm in replay["figures"]["all"]
    }
    date = replay["provenance"]["date"][:10]
    steps = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(RESULTS.glob("cycle_27b*"))]
    h200 = "\n".join(_h200(steps, tokens)) + "\n"
    (folder / f"projection_27b_h200_{date}.md").write_text(h200, encoding="utf-8")
    gb10 = "\n".join(_gb10(tokens)) + "\n"
    (folder / f"projection_gb10_{date}.md").write_text(gb10, encoding="utf-8")


def _h200(runs: list[dict[str, Any]], tokens: dict[str, float]) -> list[str]:
    lines = [
        "# Projection: tokens/s of the 27B shape on an H200",
        "",
        "**A projection, not a measurement.** Two inputs: step times of the 27B shape in bf16 with",
        f"random weights ({runs[0]['device']}, torch {runs[0]['torch']}), and tokens a cycle that",
        "the embedded 9.6 M model accepts on recorded requests. A real 27B model with its own MTP",
        "head accepts differently (the paper: 5.3 tokens a cycle for hydra27, 4.15 for MTP-5).",
        "",
        "| arm | context | drafted ids | step ms (measured) | tokens/cycle (measured) | tokens/s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        for row in run["rows"]:
            if row["arm"] in tokens:
                rate = tokens[row["arm"]] / row["step_ms"] * 1e3
                ids = run.get("draft_vocab") or "all"
                lines.append(
                    f"| {row['arm']} | {row['context']} | {ids} | {row['step_ms']:.2f} "
                    f"| {tokens[row['arm']]:.2f} | {rate:.0f} |"
                )
    return lines


def _gb10(tokens: dict[str, float]) -> list[str]:
    lines = [
        "# Projection: a GB10 from bytes",
        "",
        "**A projection, not a measurement**: bytes that a cycle must read over the rate that",
        f"published GB10 figures imply ({GB10_TB_S[0]} to {GB10_TB_S[1]} TB/s). Tokens a cycle are",
        "those of the embedded model on recorded requests. Today the engine runs bf16 weights; the",
        "quantised rows say what loading NVFP4/FP8 would bring. Every kernel compiles for sm_121",
        "(results/compile_table.json: no spills in hot kernels, at most 99 KB of shared memory).",
        "Host work and launch gaps are not counted.",
        "",
        "| weights | arm | GB read a cycle | ms a cycle | tokens/cycle | tokens/s |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, bytes_ in WEIGHTS.items():
        for arm, passes in (("plain", 0), ("chain-5", 5), ("hydra27", 5)):
            state = sum(STATE_GB.values())
            total = bytes_["target"] + passes * bytes_["pass_64k"] + state
            ms = [total / rate for rate in reversed(GB10_TB_S)]
            rates = [tokens[arm] / value * 1e3 for value in reversed(ms)]
            lines.append(
                f"| {name} | {arm} | {total:.1f} | {ms[0]:.0f}-{ms[1]:.0f} | {tokens[arm]:.2f} "
                f"| {rates[0]:.1f}-{rates[1]:.1f} |"
            )
    lines += ["", "Drafting passes read 65,536 ids of the head (`draft_vocab`)."]
    return lines


if __name__ == "__main__":
    main()
