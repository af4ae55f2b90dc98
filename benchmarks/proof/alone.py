"""One family in a process of its own: python -m benchmarks.proof.alone FAMILY DEVICE MODEL FILE."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from benchmarks.proof.runner import here, prepare


def main() -> None:
    """Run the family, print a line a check, write the checks to the file."""
    family, device, model, output = sys.argv[1:]
    prepare(device)
    checks = here([family], Path(model), device, partial(print, flush=True))
    Path(output).write_text(json.dumps(checks), encoding="utf-8")


if __name__ == "__main__":
    main()
