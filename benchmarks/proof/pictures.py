"""The pictures of a proof's report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

matplotlib.rcParams["svg.hashsalt"] = "lumotree"
_OURS, _OTHER, _RED = "#2a9d8f", "#adb5bd", "#d62828"
_SIDES = ("ours_outside", "native_outside")
Report = dict[str, Any]


def draw_all(report: Report, folder: Path, stem: str) -> list[str]:
    """Write the pictures that a report has figures for; return their file names."""
    names = []
    for name, (draw, rows) in _PICTURES.items():
        count = len(rows(report))
        if not count:
            continue
        figure, axes = plt.subplots(figsize=(7.2, 1.2 + 0.24 * count))
        draw(axes, rows(report))
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        names.append(f"{stem}_{name}.svg")
        figure.savefig(folder / names[-1], metadata={"Date": None})
        plt.close(figure)
    return names


def _ran(report: Report) -> list[tuple[str, Any]]:
    """Return the checks that ran."""
    return [(f"{c['family']}: {c['name']}", c) for c in report["checks"] if not c["not_run"]]


def _checks(axes: Axes, rows: list[tuple[str, Any]]) -> None:
    for place, (_, check) in enumerate(rows):
        colour = _OURS if check["holds"] else _RED
        axes.barh(place, check["passed"] / max(1, check["cases"]), color=colour)
        text = f" {check['passed']:,} / {check['cases']:,}"
        axes.text(1.0, place, text, va="center", fontsize=7)
    _name_rows(axes, rows)
    axes.set_xlim(0, 1.25)
    axes.set_xticks([0, 0.5, 1])
    axes.set_xlabel("share that passed; red: failed, or its control did not fire")


def _paired(report: Report) -> list[tuple[str, Any]]:
    """Return (set and level, counts) of the rule with each side as native."""
    rows = []
    for check in report["checks"]:
        head, _, name = check["name"].partition(", either side native, ")
        if head == "paired rule":
            counts = {k: v for k, v in check["detail"].items() if isinstance(v, dict)}
            rows += [(f"{name}: {level}", value) for level, value in counts.items()]
    return rows


def _outside(axes: Axes, rows: list[tuple[str, Any]]) -> None:
    labels = ("ours, the foreign chain native", "the foreign chain, ours native")
    for side, shift, colour, label in zip(
        _SIDES, (-0.2, 0.2), (_OURS, _OTHER), labels, strict=True
    ):
        places = [place + shift for place in range(len(rows))]
        shares = [100 * counts[side] / counts["of"] for _, counts in rows]
        axes.barh(places, shares, 0.4, color=colour, label=label)
    _name_rows(axes, rows)
    axes.set_xlabel("percent outside the paired rule")
    axes.legend(frameon=False, fontsize=8)


def _late(report: Report) -> list[tuple[str, Any]]:
    """Return (fault and prefix, when greedy tokens alone would have told)."""
    rows = []
    for check in report["checks"]:
        for index, text in enumerate(check["detail"].get("tokens_alone", [])):
            rows.append((f"{check['name']}, prefix {index + 1}", text))
    return rows


def _lateness(axes: Axes, rows: list[tuple[str, Any]]) -> None:
    for place, (_, text) in enumerate(rows):
        cycles = text.split()[0]
        if cycles.isdigit():
            axes.barh(place, int(cycles), color=_OTHER)
        label = "" if cycles.isdigit() else f"  {text}"
        axes.text(0, place, label, va="center", fontsize=7)
        axes.plot(0, place, "o", color=_OURS, markersize=4)
    _name_rows(axes, rows)
    axes.set_xlim(-0.1, 6)
    axes.set_xlabel(
        "cycles after the fault; dot: digest or root identity, bar: greedy tokens alone"
    )


def _planted(report: Report) -> list[tuple[str, Any]]:
    """Return (fault, steps found by each audit) of the sampler's faults."""
    chosen = [c for c in report["checks"] if "steps_detected" in c["detail"]]
    return [(c["name"].removeprefix("planted "), c["detail"]) for c in chosen]


def _sampler(axes: Axes, rows: list[tuple[str, Any]]) -> None:
    colours = ("#2a9d8f", "#457b9d", "#e9c46a")
    for index, audit in enumerate(rows[0][1]["by"]):
        places = [place + (index - 1) * 0.25 for place in range(len(rows))]
        steps = [detail["by"][audit] for _, detail in rows]
        axes.barh(places, steps, 0.25, color=colours[index], label=audit)
    _name_rows(axes, rows)
    axes.set_xlabel("steps of six that detect the fault")
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _name_rows(axes: Axes, rows: list[tuple[str, Any]]) -> None:
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)


_Rows = Callable[[Report], list[tuple[str, Any]]]
_PICTURES: dict[str, tuple[Callable[[Axes, list[tuple[str, Any]]], None], _Rows]] = {
    "checks": (_checks, _ran),
    "paired": (_outside, _paired),
    "faults": (_lateness, _late),
    "sampler": (_sampler, _planted),
}
