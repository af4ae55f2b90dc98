"""Make a dated report page with tables and plots from a proof's JSON.

Run as: python -m benchmarks.proof.report RESULT.json FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.proof.pictures import draw_all
from benchmarks.proof.runner import markdown


def main() -> None:
    """Write the page and its pictures."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    report = json.loads(source.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{source.stem}_{report['provenance']['date'][:10]}"
    files = draw_all(report, folder, stem)
    images = [f"![{file[len(stem) + 1 : -4]}]({file})" for file in files]
    made = f"Made from `{source.name}` by `python -m benchmarks.proof.report`."
    page = "\n".join([markdown(report), made, "", *images])
    (folder / f"{stem}.md").write_text(page + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
