"""`lumotree inspect`: say what a checkpoint folder holds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from services.commands import options as opt
from services.model.inspect import describe

Folder = Annotated[Path, typer.Argument(help="Checkpoint folder.")]


def inspect(folder: Folder = opt.EMBEDDED_MODEL, as_json: opt.Json = False) -> None:
    """Print layers, heads, dtypes, MTP tensors, tying and bytes of a checkpoint."""
    facts = dataclasses.asdict(describe(folder))
    if as_json:
        print(json.dumps(facts, default=str))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if type(value) is int else str(value))
    Console().print(table)
