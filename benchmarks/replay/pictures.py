"""The pictures of a replay's report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

matplotlib.rcParams["svg.hashsalt"] = "lumotree"
_SOURCES = {"mtp_spine": "#2a9d8f", "mtp_runner_up": "#457b9d"}
_SOURCES |= {"suffix_tail": "#b5179e", "suffix_rescue": "#e9c46a"}
_SPANS = {"drafter": "draft", "verifier": "target", "committer": "publish", "dispatch": "dispatch"}
_EXACT, _OTHER, _INK = "#2a9d8f", "#adb5bd", "#1d3557"
_TREES = ("hydra27", "adaptive")
Report = dict[str, Any]


def draw_all(report: Report, folder: Path, stem: str, suffix: str = "svg") -> list[str]:
    """Write the pictures of a report; return their file names."""
    names = []
    for name, (draw, rows) in _PICTURES.items():
        figure, axes = plt.subplots(figsize=(7.2, max(2.8, 1.2 + 0.24 * rows(report))))
        draw(axes, report)
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        names.append(f"{stem}_{name}.{suffix}")
        figure.savefig(folder / names[-1], metadata={"Date": None} if suffix == "svg" else None)
        plt.close(figure)
    return names


def _all(report: Report) -> dict[str, Any]:
    figures: dict[str, Any] = report["figures"]["all"]
    return figures


def _drafting(report: Report) -> dict[str, Any]:
    return {name: arm for name, arm in _all(report).items() if arm["accepted_by_source"]}


def _main(report: Report) -> dict[str, Any]:
    """Return the arms that are no other's variant."""
    arms = report["arms"]
    return {n: a for n, a in _drafting(report).items() if arms[n]["base"] == "plain"}


def _rates(axes: Axes, report: Report) -> None:
    figures = _all(report)
    for place, (name, arm) in enumerate(figures.items()):
        low, high = arm["range"]
        value = arm["tokens_per_second"]
        axes.barh(place, value, color=_EXACT if report["arms"][name]["is_exact"] else _OTHER)
        axes.plot([low, high], [place, place], color="black", linewidth=1)
        axes.text(max(value, high), place, f" {value:.0f}", va="center", fontsize=8)
    _name_rows(axes, figures)
    axes.set_xlabel("tokens/s, pooled; line: range over repeats; grey: not bit-comparable")


def _depths(axes: Axes, report: Report) -> None:
    for name, arm in _main(report).items():
        shares = [count / arm["cycles"] for count in arm["accepted_by_depth"]]
        axes.plot(range(1, len(shares) + 1), shares, marker="o", markersize=4, label=name)
    axes.set_xlabel("depth")
    axes.set_ylabel("accepted share of cycles")
    axes.legend(frameon=False, fontsize=8)


def _histogram(axes: Axes, report: Report) -> None:
    arms = {n: a for n, a in _main(report).items() if n in (*_TREES, "chain-5", "chain-7")}
    width = 0.8 / max(1, len(arms))
    for index, (name, arm) in enumerate(arms.items()):
        counts = arm["acceptance_histogram"]
        places = [depth + (index - (len(arms) - 1) / 2) * width for depth in range(len(counts))]
        axes.bar(places, [count / arm["cycles"] for count in counts], width, label=name)
    axes.set_xlabel("accepted drafts of a cycle")
    axes.set_ylabel("share of cycles")
    axes.legend(frameon=False, fontsize=8)


def _sources(axes: Axes, report: Report) -> None:
    figures = _drafting(report)
    parts = {
        source: [
            arm["accepted_by_source"].get(source, 0) / arm["cycles"] for arm in figures.values()
        ]
        for source in _SOURCES
    }
    _stack(axes, figures, parts, list(_SOURCES.values()))
    axes.set_xlabel("accepted drafts a cycle, by source")


def _spans(axes: Axes, report: Report) -> None:
    figures = {name: arm for name, arm in _all(report).items() if arm["ms_per_cycle"]}
    parts = {
        label: [arm["ms_per_cycle"].get(span, 0.0) for arm in figures.values()]
        for span, label in _SPANS.items()
    }
    _stack(axes, figures, parts, ["#e9c46a", "#2a9d8f", "#457b9d", "#e76f51"])
    axes.set_xlabel("ms a cycle")


def _stack(
    axes: Axes, names: Mapping[str, Any], parts: Mapping[str, list[float]], colours: list[str]
) -> None:
    left = [0.0] * len(names)
    for (label, values), colour in zip(parts.items(), colours, strict=True):
        axes.barh(range(len(names)), values, left=left, color=colour, label=label)
        left = [a + b for a, b in zip(left, values, strict=True)]
    _name_rows(axes, names)
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _rows(axes: Axes, report: Report) -> None:
    """Verification by rows a forward; no arm in other processes or with padded rows."""
    main = ("plain", *_main(report))
    for name, arm in _all(report).items():
        facts, spans = report["arms"][name], arm["ms_per_cycle"]
        if "verifier" not in spans or facts["changes"] or facts["runtime"] != "inproc":
            continue
        rows = 1 + sum(arm["drafted_by_source"].values()) / arm["cycles"]
        axes.plot(rows, spans["verifier"], "o", color=_INK if name in main else _OTHER)
        if name in main:
            place = rows, spans["verifier"]
            axes.annotate(name, place, (5, -9), textcoords="offset points", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rows verified a cycle, mean; grey: variants")
    axes.set_ylabel("verification, ms a cycle")


def _forest(report: Report) -> list[dict[str, Any]]:
    """Return the ratios to show: the trees to all, variants to their base."""
    arms, ratios = report["arms"], report["ratios"]
    trees = [entry for tree in _TREES for entry in ratios if entry["arm"] == tree]
    bases = [entry for entry in ratios if entry["base"] == arms[entry["arm"]]["base"]]
    return [*trees, *(entry for entry in bases if entry["base"] != "plain")]


def _ratios(axes: Axes, report: Report) -> None:
    shown = _forest(report)
    for place, entry in enumerate(shown):
        axes.plot(entry["interval_95"], [place, place], color="#457b9d")
        axes.plot(entry["ratio"], place, "o", color="#457b9d", markersize=4)
    axes.axvline(1.0, color=_OTHER, linewidth=1)
    axes.set_xscale("log")
    ticks = [tick for tick in (0.5, 0.7, 1, 1.5, 2, 3, 5, 8, 12) if _is_near(tick, shown)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    _name_rows(axes, [f"{entry['arm']} : {entry['base']}" for entry in shown])
    axes.set_xlabel("ratio of pooled rates, 95% interval (bootstrap over requests)")


def _is_near(tick: float, shown: list[dict[str, Any]]) -> bool:
    ends: list[float] = [1.0, *(end for entry in shown for end in entry["interval_95"])]
    return 0.8 * min(ends) <= tick <= 1.25 * max(ends)


def _name_rows(axes: Axes, names: Mapping[str, Any] | list[str]) -> None:
    axes.set_yticks(range(len(names)), list(names), fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)


def _flat(report: Report) -> int:
    del report
    return 11


_PICTURES: dict[str, tuple[Callable[[Axes, Report], None], Callable[[Report], int]]] = {
    "rates": (_rates, lambda report: len(_all(report))),
    "ratios": (_ratios, lambda report: len(_forest(report))),
    "depths": (_depths, _flat),
    "histogram": (_histogram, _flat),
    "sources": (_sources, lambda report: len(_drafting(report)) + 1),
    "spans": (_spans, lambda report: len(_all(report)) + 1),
    "rows": (_rows, _flat),
}
