"""A dated report page with pictures, made from a result's JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Draw = Callable[[dict[str, Any], Path, str], list[str]]
Text = Callable[[dict[str, Any], Path], str]


def write_page(source: Path, folder: Path, draw_all: Draw, text: Text) -> None:
    """Write the page of a result and its pictures into a folder.

    Args    draw_all: draws the pictures, returns their file names. text: the page before them.
    """
    report = json.loads(source.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{source.stem}_{report['provenance']['date'][:10]}"
    files = draw_all(report, folder, stem)
    images = [f"![{file[len(stem) + 1 : -4]}]({file})" for file in files]
    page = "\n".join([text(report, source), *images])
    (folder / f"{stem}.md").write_text(page + "\n", encoding="utf-8")
