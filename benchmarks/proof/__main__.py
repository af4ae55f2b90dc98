"""`python -m benchmarks.proof`: the same run where no terminal library is installed."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from benchmarks.proof.runner import (
    EMBEDDED_MODEL,
    JOBS,
    family_names,
    prepare,
    run_families,
    save,
)


def main() -> int:
    """Run the families and print a line a check; 1 if anything stands against the system."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof", description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", type=Path, default=EMBEDDED_MODEL)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--jobs", type=int, default=JOBS)
    asked = parser.parse_args()
    prepare(asked.device)
    families = family_names(asked.only)
    show = partial(print, flush=True)
    report = run_families(families, asked.model, asked.device, show, asked.jobs)
    save(report, asked.output)
    print("holds" if report["holds"] else "FAILS", f"in {report['seconds']} s")
    return 0 if report["holds"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
