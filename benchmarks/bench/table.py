"""Bench rows as a table, beside those of an earlier run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.bench.measure import Row
from services.contract.errors import InvalidField

Rates = dict[tuple[str, str], float]


def read_rates(file: Path) -> Rates:
    """Return the rates of an earlier run's JSON by (arm, test).

    Raises  InvalidField for a file that no bench wrote.
    """
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        return {(row["arm"], row["test"]): float(row["tokens_per_second"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        text = f"{file} is not readable as the output of lumotree bench --json"
        raise InvalidField("COMPARE", text, "--compare") from None


def show(rows: Iterable[Row], source: dict[str, Any], earlier: Rates | None) -> None:
    """Print rows, each with its ratio to the earlier run's."""
    table = Table(box=None, pad_edge=False)
    for column in ("arm", "test", "tokens/s", "accepted/cycle"):
        table.add_column(column, justify="left" if column in ("arm", "test") else "right")
    if earlier is not None:
        table.add_column("earlier", justify="right")
        table.add_column("ratio", justify="right")
    for row in rows:
        accepted = row.accepted_drafts_per_cycle
        cells = [row.arm, row.test, f"{row.tokens_per_second:.1f} ± {row.deviation:.1f}"]
        cells.append("-" if accepted is None else f"{accepted:.2f}")
        table.add_row(*cells, *_compared(row, earlier))
    console = Console()
    console.print(table)
    versions = ", ".join(f"{name} {value}" for name, value in source["versions"].items())
    text = f"{source['processor']}, {source['threads']} threads, {versions}, {source['date']}"
    console.print(text, highlight=False)


def _compared(row: Row, earlier: Rates | None) -> tuple[str, ...]:
    if earlier is None:
        return ()
    rate = earlier.get((row.arm, row.test))
    return (f"{rate:.1f}", f"{row.tokens_per_second / rate:.2f}") if rate else ("-", "-")
