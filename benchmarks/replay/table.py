"""A replay's figures as tables on a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


def show(report: dict[str, Any]) -> None:
    """Print a report's tables, ratios and failures."""
    console = Console()
    for corpus, arms in report["figures"].items():
        table = Table(title=corpus, title_justify="left", box=None, pad_edge=False)
        for column in ("arm", "tokens/s", "range", "accepted/cycle", "ms/cycle"):
            table.add_column(column, justify="left" if column == "arm" else "right")
        for name, figures in arms.items():
            table.add_row(*row(report, name, figures))
        console.print(table)
    if not all(arm["is_exact"] for arm in report["arms"].values()):
        console.print("* not bit-comparable with the exact arms", style="dim")
    for entry in report["ratios"]:
        low, high = entry["interval_95"]
        text = f"{entry['arm']} : {entry['base']} = {entry['ratio']:.2f} ({low:.2f}-{high:.2f})"
        console.print(text, highlight=False)
    console.print(texts(report))
    for name, reason in report["failures"].items():
        console.print(f"{name} {reason}", style="red", markup=False, highlight=False)
    if not report["is_complete"]:
        console.print("the run did not end; these are its figures so far", style="red")


def texts(report: dict[str, Any]) -> str:
    """Say whether the exact arms gave the same texts."""
    if report["provenance"]["plan"]["seed"] is None:
        return "unseeded: texts differ between arms by chance and were not compared"
    return f"requests whose texts differ between exact arms: {report['differing_texts']}"


def row(report: dict[str, Any], name: str, figures: dict[str, Any]) -> tuple[str, ...]:
    """Return an arm's cells: name, rate, range, accepted drafts a cycle, ms a cycle."""
    low, high = figures["range"]
    tells = figures["cycles"] > 0
    return (
        name + ("" if report["arms"][name]["is_exact"] else " *"),
        f"{figures['tokens_per_second']:.1f}",
        f"{low:.1f}-{high:.1f}",
        f"{figures['accepted_drafts_per_cycle']:.2f}" if tells else "-",
        f"{figures['ms_per_cycle'].get('round', 0.0):.2f}" if tells else "-",
    )
