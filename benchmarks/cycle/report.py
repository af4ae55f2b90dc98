"""Write the page of captured cycles from the results of a GPU.

Run as: python -m benchmarks.cycle.report FOLDER. Reads results/cycle_27b*.json,
results/cycle_embedded.json and results/selection.json.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
# vLLM 0.26.0 on such a machine, another run: ms a step at 4k, tokens/s of the embedded checkpoint.
VLLM_PLAIN, VLLM_MTP5, VLLM_EMBEDDED = 18.2, 25.9, 384


def main() -> None:
    """Write FOLDER/cycle_h200_<date>.md."""
    shapes = [_load(path.stem) for path in sorted(RESULTS.glob("cycle_27b*.json"))]
    embedded, selection = _load("cycle_embedded"), _load("selection")
    date = shapes[0]["date"]
    lines = [
        f"# Captured cycles on an H200, {date}",
        "",
        *_wrapped(
            f"{shapes[0]['device']}, torch {shapes[0]['torch']}, triton {shapes[0]['triton']}.",
            "Stages in one process; every stage's device work is captured in CUDA graphs of",
            "its own. Gates come first: the arms' tokens are equal, selection is byte-equal.",
            "Written by `benchmarks.cycle.report` from the results of `cycle.shape27b`,",
            "`cycle.embedded` and `kernels.selection`.",
        ),
        *_shape_lines(shapes),
        *_embedded_lines(embedded),
        *_selection_lines(selection),
    ]
    file = Path(sys.argv[1]) / f"cycle_h200_{date}.md"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _wrapped(*sentences: str) -> list[str]:
    return textwrap.wrap(" ".join(sentences), 100, break_on_hyphens=False)


def _load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _shape_lines(runs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "",
        "## 27B shape, bf16, random weights, batch 1",
        *_wrapped(
            "30 timed cycles an arm behind a random prompt, medians, ms. Random weights accept",
            "almost no draft: a cycle publishes one node. target: the forward; draft: the MTP",
            "passes; publish: in full; step: wall time of a whole cycle; dispatch: step",
            "without target and draft (walk, publication, host work, gaps); host: time inside",
            "the stages without target and draft.",
        ),
        "",
        "| drafted ids | arm | context | target | draft | publish | dispatch | host "
        "| step (p10-p90) | to plain | to weight read |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        lines += [_shape_line(run, row) for row in run["rows"]]
    floors = ", ".join(f"{run['weight_read_ms']:.2f}" for run in runs)
    best = min(row["step_ms"] for run in runs for row in run["rows"] if row["arm"] == "hydra27")
    return [
        *lines,
        "",
        *_wrapped(
            f"Weight read: {runs[0]['weights_gb']:.1f} GB at the reading rate of the same run,",
            f"{floors} ms. For orientation, vLLM 0.26.0 on such a machine in another run: plain",
            f"{VLLM_PLAIN}, MTP-5 {VLLM_MTP5} ms a step at 4k. The fastest hydra27 cycle here,",
            f"{best:.2f} ms, is {100 * (1 - best / VLLM_MTP5):.0f}% under that MTP-5 step; it",
            "verifies 27 candidates instead of 5.",
        ),
    ]


def _shape_line(run: dict[str, Any], row: dict[str, Any]) -> str:
    spans = row["spans_ms"]
    waits = spans["target"] + (spans["draft"] if row["arm"] != "plain" else 0)
    host = sum(row["stage_host_ms"].values()) - waits
    cells = [
        str(run["draft_vocab"] or "all"),
        row["arm"],
        f"{row['context']:,}",
        *(_ms(spans.get(name)) for name in ("target", "draft", "publish", "dispatch")),
        f"{host:.2f}",
        f"{row['step_ms']:.2f} ({row['p10_ms']:.2f}-{row['p90_ms']:.2f})",
        f"{row['against_plain']:.2f}",
        f"{row['step_ms'] / run['weight_read_ms']:.3f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _embedded_lines(result: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "## The embedded model, batch 1",
        *_wrapped(
            f"Four code prompts, 256 tokens each, {result['rows'][0]['repeats']} repeats in",
            "rotating order, each run with a suffix tenant of its own; median repeat (range).",
            "The rate leaves out each prompt's first cycle.",
        ),
        "",
        "| sampling | arm | tokens/s | tokens a cycle | cycle ms | to plain |",
        "|---|---|---:|---:|---:|---:|",
    ]
    plain = {r["sampling"]: r["tokens_per_s"] for r in result["rows"] if r["arm"] == "plain"}
    for row in result["rows"]:
        low, high = row["range_tokens_per_s"]
        ratio = row["tokens_per_s"] / plain[row["sampling"]]
        lines.append(
            f"| {row['sampling']} | {row['arm']} | {row['tokens_per_s']:,.0f} "
            f"({low:,.0f}-{high:,.0f}) | {row['tokens_a_cycle']:.2f} | {row['cycle_ms']:.3f} "
            f"| {ratio:.2f} |"
        )
    best = next(r for r in result["rows"] if (r["sampling"], r["arm"]) == ("greedy", "hydra27"))
    return [
        *lines,
        "",
        *_wrapped(
            "For orientation, vLLM 0.26.0 with this checkpoint on such a machine in another run:",
            f"MTP-3 {VLLM_EMBEDDED} tokens/s, its fastest arm; hydra27, greedy, is",
            f"{best['tokens_per_s'] / VLLM_EMBEDDED:.1f} x that.",
        ),
    ]


def _selection_lines(result: dict[str, Any]) -> list[str]:
    gate = result["gate"]
    lines = [
        "",
        "## Selection",
        *_wrapped(
            f"Byte-equal to a stable sort on {gate['rows']:,} configurations (rows of four",
            "vocabularies, untied, tied, with NaN and infinities, both tie orders, k of 1, 3,",
            "20, 64), or nothing is timed; the other tie order and a moved id are planted and",
            "found. resident: one buffer, in the L2 cache where it fits; rotating: buffers of",
            "four times the L2. Bound: 1.5 x one read of the logits + 4 us.",
            result.get("note", ""),
        ),
        "",
        "| vocabulary | rows | k | logits | read us | selection us | bound us | met | torch us |",
        "|---:|---:|---:|---|---:|---:|---:|---|---:|",
    ]
    for row in result["selection"]:
        lines.append(
            f"| {row['vocab']:,} | {row['rows']} | {row['k']} | {row['logits']} "
            f"| {row['read_us']:.1f} | {row['select_us']:.1f} | {row['bound_us']:.1f} "
            f"| {'yes' if row['met'] else 'no'} | {row['torch_us']:.0f} |"
        )
    return lines


if __name__ == "__main__":
    main()
