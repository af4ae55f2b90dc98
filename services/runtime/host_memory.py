"""Memory of the host that may still be taken, and the refusal to go below a reserve.

Weights, states and unified device memory come out of one pool there, and a host that runs dry
freezes without a message. No device library is asked: some cannot tell on such machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from services.contract.errors import ExhaustedError, PreconditionError

RESERVE_BYTES: Final = 512 << 20
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
_MIB: Final = 1 << 20


def available_bytes() -> int:
    """Return what may be taken without swapping: of the host, or of a container's share.

    Numbers a file that cannot be read bounds nothing.
    """
    rows = _table(MEMINFO)
    host = rows.get("MemAvailable:", 1 << 50) * 1024
    return min(host, _container_bytes())


def check_start(sizes: Mapping[str, int], device: str) -> None:
    """Refuse to load what has no room beside the reserve.

    Args    sizes: bytes by what they are for.
    Raises  PreconditionError with both numbers.
    """
    needed, found = sum(sizes.values()), _room(device)
    if needed + RESERVE_BYTES > found:
        parts = ", ".join(f"{name} {size // _MIB:,}" for name, size in sizes.items())
        text = (
            f"{needed // _MIB:,} MiB are needed ({parts}) and {RESERVE_BYTES // _MIB} stay free; "
            f"{found // _MIB:,} are available on {device}; lower max_sequences, context_length "
            "or num_pages"
        )
        raise PreconditionError("MEMORY", text, "max_sequences")


def check_running() -> None:
    """Refuse new work while the host is below its reserve.

    Raises  ExhaustedError.
    """
    if available_bytes() < RESERVE_BYTES:
        text = f"less than {RESERVE_BYTES // _MIB} MiB of host memory are left; retry later"
        raise ExhaustedError("HOST_MEMORY", text)


def _room(device: str) -> int:
    """Return what may be taken on a device; unified memory is the host's."""
    if device == "cpu":
        return available_bytes()
    free, _ = torch.cuda.mem_get_info(device)
    if torch.cuda.get_device_properties(device).is_integrated:
        return max(free, available_bytes())  # free leaves reclaimable memory out there
    return int(free)


def _container_bytes() -> int:
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return 1 << 60
    return limit - used + _table(CGROUP / "memory.stat").get("inactive_file", 0)


def _table(file: Path) -> dict[str, int]:
    try:
        rows = [line.split() for line in file.read_text().splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) > 1}
    except (OSError, ValueError):
        return {}
