"""Make a dated report page with tables and plots from a proof's JSON.

Run as: python -m benchmarks.proof.report RESULT.json FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.page import write_page
from benchmarks.proof.pictures import draw_all
from benchmarks.proof.runner import markdown


def text(report: dict[str, Any], source: Path) -> str:
    """Return the page without its pictures."""
    made = f"Made from `{source.name}` by `python -m benchmarks.proof.report`."
    return "\n".join([markdown(report), made, ""])


if __name__ == "__main__":
    write_page(Path(sys.argv[1]), Path(sys.argv[2]), draw_all, text)
