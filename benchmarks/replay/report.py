"""Make a dated report page with tables and plots from a replay's JSON.

Run as: python -m benchmarks.replay.report RESULT.json FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

matplotlib.rcParams["svg.hashsalt"] = "lumotree"
_COLOURS = {"mtp_spine": "#2a9d8f", "mtp_runner_up": "#457b9d", "suffix_tail": "#b5179e"}
_COLOURS |= {"suffix_rescue": "#e9c46a"}
_SPANS = ("drafter", "verifier", "committer", "dispatch")
_SPAN_NAMES = {"drafter": "draft", "verifier": "target", "committer": "publish"}
Report = dict[str, Any]


def main() -> None:
    """Write the page and its pictures."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    report = json.loads(source.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    date = report["provenance"]["date"][:10]
    stem = f"{source.stem}_{date}"
    pictures = {
        "rates": _rates,
        "depths": _depths,
        "sources": _sources,
        "spans": _spans,
        "ratios": _ratios,
    }
    for name, draw in pictures.items():
        _save(folder / f"{stem}_{name}.svg", report, draw)
    page = "\n".join([*_head(report, source), *_tables(report), *_images(stem, list(pictures))])
    (folder / f"{stem}.md").write_text(page + "\n", encoding="utf-8")


def _save(file: Path, report: Report, draw: Callable[[Axes, Report], None]) -> None:
    figure, axes = plt.subplots(figsize=(7.2, 3.6))
    draw(axes, report)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _all(report: Report) -> dict[str, Any]:
    figures: dict[str, Any] = report["figures"]["all"]
    return figures


def _rates(axes: Axes, report: Report) -> None:
    figures = _all(report)
    for place, (name, arm) in enumerate(figures.items()):
        low, high = arm["range"]
        value = arm["tokens_per_second"]
        is_exact = report["arms"][name]["is_exact"]
        axes.barh(place, value, color="#2a9d8f" if is_exact else "#adb5bd")
        axes.plot([low, high], [place, place], color="black", linewidth=1)
        axes.text(max(value, high), place, f" {value:.0f}", va="center")
    axes.set_yticks(range(len(figures)), list(figures))
    axes.invert_yaxis()
    axes.set_xlabel("tokens/s, pooled; line: range over repeats; grey: not bit-comparable")


def _depths(axes: Axes, report: Report) -> None:
    for name, arm in _all(report).items():
        if arm["accepted_by_depth"]:
            shares = [count / arm["cycles"] for count in arm["accepted_by_depth"]]
            axes.plot(range(1, len(shares) + 1), shares, marker="o", label=name)
    axes.set_xlabel("depth")
    axes.set_ylabel("accepted share of cycles")
    axes.legend(frameon=False)


def _sources(axes: Axes, report: Report) -> None:
    figures = {n: a for n, a in _all(report).items() if a["accepted_by_source"]}
    left = [0.0] * len(figures)
    for source, colour in _COLOURS.items():
        values = [a["accepted_by_source"].get(source, 0) / a["cycles"] for a in figures.values()]
        axes.barh(range(len(figures)), values, left=left, color=colour, label=source)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set_yticks(range(len(figures)), list(figures))
    axes.invert_yaxis()
    axes.set_xlabel("accepted drafts a cycle")
    axes.legend(frameon=False, fontsize=8)


def _spans(axes: Axes, report: Report) -> None:
    figures = {n: a for n, a in _all(report).items() if a["ms_per_cycle"]}
    left = [0.0] * len(figures)
    for span in _SPANS:
        values = [arm["ms_per_cycle"].get(span, 0.0) for arm in figures.values()]
        axes.barh(range(len(figures)), values, left=left, label=_SPAN_NAMES.get(span, span))
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set_yticks(range(len(figures)), list(figures))
    axes.invert_yaxis()
    axes.set_xlabel("ms a cycle")
    axes.legend(frameon=False)


def _ratios(axes: Axes, report: Report) -> None:
    shown = [entry for entry in report["ratios"] if entry["arm"] in ("hydra27", "adaptive")]
    for place, entry in enumerate(shown):
        low, high = entry["interval_95"]
        axes.plot([low, high], [place, place], color="#457b9d")
        axes.plot(entry["ratio"], place, "o", color="#457b9d")
    axes.axvline(1.0, color="#adb5bd", linewidth=1)
    axes.set_yticks(range(len(shown)), [f"{e['arm']} : {e['base']}" for e in shown])
    axes.invert_yaxis()
    axes.set_xlabel("ratio of pooled rates, 95% interval (bootstrap over requests)")


def _head(report: Report, source: Path) -> list[str]:
    facts = report["provenance"]
    plan = facts["plan"]
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items())
    return [
        f"# Replay, {facts['date'][:10]}",
        "",
        f"Made from `{source.name}` by `python -m benchmarks.replay.report`.",
        f"{facts['processor']}, {facts['threads']} threads; Python {facts['python']}, {versions}.",
        f"Requests: {facts['corpora_note']}. Cap {plan['max_tokens']} tokens, {plan['repeats']} "
        f"repeats in rotating order, seed {plan['seed']}, sampling {facts['sampling']}.",
        "Rates pool (tokens - 1) / (time after the first token) over the same requests.",
        f"Requests whose texts differ between exact arms: {report['differing_texts']}.",
        "",
    ]


def _tables(report: Report) -> list[str]:
    lines = []
    for corpus, arms in report["figures"].items():
        lines += [f"## {corpus}", "", "| arm | tokens/s | range | accepted/cycle | ms/cycle |"]
        lines.append("|---|---:|---:|---:|---:|")
        for name, arm in arms.items():
            low, high = arm["range"]
            mark = "" if report["arms"][name]["is_exact"] else " *"
            lines.append(
                f"| {name}{mark} | {arm['tokens_per_second']:.1f} | {low:.1f}-{high:.1f} "
                f"| {arm['accepted_drafts_per_cycle']:.2f} "
                f"| {arm['ms_per_cycle'].get('round', 0.0):.2f} |"
            )
        lines.append("")
    lines += ["\\* not bit-comparable with the exact arms", "", "## Ratios", ""]
    lines += ["| arm | base | ratio | 95% interval |", "|---|---|---:|---:|"]
    for entry in report["ratios"]:
        low, high = entry["interval_95"]
        ratio = f"{entry['ratio']:.2f} | {low:.2f}-{high:.2f}"
        lines.append(f"| {entry['arm']} | {entry['base']} | {ratio} |")
    return [*lines, ""]


def _images(stem: str, names: list[str]) -> list[str]:
    return [f"![{name}]({stem}_{name}.svg)" for name in names]


if __name__ == "__main__":
    main()
