"""Write the report and the picture of results/attention.json.

Run: python -m benchmarks.kernels.attention_page
"""

import json
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

from benchmarks.kernels.timing import RESULTS

matplotlib.rcParams["svg.hashsalt"] = "lumotree"
REPORTS = RESULTS.parent / "reports"


def bars(result: dict[str, Any]) -> list[tuple[str, int, float]]:
    """Return (name, context, microseconds) of ours and of each peer that ran, hydra27."""
    ours = [("ours", r["context"], r["median"]) for r in result["rows"] if r["tree"] == "hydra27"]
    peers = [(p["peer"], p["context"], p["median"]) for p in result["peers"] if "median" in p]
    return [bar for bar in [*ours, *peers] if bar[1] > 4096]


def draw(result: dict[str, Any], stem: str) -> None:
    """Draw the time of a layer, ours beside the peers."""
    found = sorted(bars(result), key=lambda bar: (bar[1], bar[2]))
    figure, axes = plt.subplots(figsize=(7.2, 1.2 + 0.3 * len(found)))
    for place, (name, _, value) in enumerate(found):
        axes.barh(place, value, color="#2a9d8f" if name == "ours" else "#adb5bd")
        axes.text(value, place, f" {value:.0f}", va="center", fontsize=8)
    axes.set_yticks(range(len(found)), [f"{name}, {context:,}" for name, context, _ in found])
    axes.set_xscale("log")
    axes.set_xlabel("microseconds a layer, hydra27, log scale")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(REPORTS / f"{stem}.svg", metadata={"Date": None})


def table(result: dict[str, Any]) -> list[str]:
    """Return the rows of ours."""
    lines = [
        "| tree | context | us a layer | p10-p90 | KV TB/s | of reading rate | TFLOP/s "
        "| of product rate |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        lines.append(
            f"| {row['tree']} | {row['context']:,} | {row['median']:.1f} "
            f"| {row['p10']:.1f}-{row['p90']:.1f} | {row['kv_tb_s']:.2f} "
            f"| {row['of_read_rate']:.0%} | {row['tflops']:.0f} | {row['of_product_rate']:.0%} |"
        )
    return lines


def peer_table(result: dict[str, Any]) -> list[str]:
    """Return the rows of the peers, with their time over ours."""
    ours = {r["context"]: r["median"] for r in result["rows"] if r["tree"] == "hydra27"}
    lines = ["| peer | context | us a layer | over ours |", "|---|---:|---:|---:|"]
    for peer in result["peers"]:
        name, context = peer["peer"], peer["context"]
        if "median" in peer:
            times = f"{peer['median']:.1f} | {peer['median'] / ours[context]:.2f}"
        else:
            times = f"did not run: {peer['not_run'].splitlines()[0]} | -"
        lines.append(f"| {name} | {context:,} | {times} |")
    return lines


def main() -> None:
    """Write the page and its picture."""
    result = json.loads((RESULTS / "attention.json").read_text())
    stem = f"attention_h200_{result['date']}"
    draw(result, stem)
    text = [
        f"# Tree attention at the 27B shape, {result['date']}",
        "",
        f"{result['device']}, torch {result['torch']}, triton {result['triton']}. In the same run: "
        f"reading {result['read_tb_s']:.2f} TB/s, bf16 product of 8192 x 8192 "
        f"{result['product_tflops']:.0f} TFLOP/s. 24 query heads, 4 kv heads, head dim 256, bf16, "
        "pages of 64 shuffled. JSON: `results/attention.json`.",
        "Method: four layers captured in one graph, their keys exceed the cache; 40 replays, "
        "median and p10-p90. Peers eagerly, 20 repeats, layout and planning not charged to them. "
        "The gate ran first: float64, log-sum-exp, moved keys, batches, poison, two processes.",
        "",
        *table(result),
        "",
        "## Peers, hydra27, same run",
        *peer_table(result),
        "",
        f"![time]({stem}.svg)",
        "",
        *[f"- {note}" for note in result.get("notes", [])],
    ]
    (REPORTS / f"{stem}.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
