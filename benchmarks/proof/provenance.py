"""Where and when a result was made."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "triton", "numba", "numpy", "transformers", "fla-core")


def provenance(device: str, model: Path) -> dict[str, Any]:
    """Return the device, the versions, the checkpoint's name and the date."""
    name = torch.cuda.get_device_name() if device == "cuda" else processor()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "device_name": name,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "model": model.name,
        "versions": {package: _version(package) for package in PACKAGES},
    }


def processor() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
