"""Devices that a configuration may name, checked before anything is loaded."""

from __future__ import annotations

from typing import Final

import torch

from services.contract.errors import PreconditionError

LEAST_CAPABILITY: Final = (8, 0)


def check_device(name: str) -> None:
    """Refuse a device that is not there or too old.

    Raises  PreconditionError naming the device, and what there is.
    """
    if name == "cpu":
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(name.partition(":")[2] or 0)
    if index >= count:
        text = f"{name}: this torch finds {count} CUDA devices; use cpu, or install one with CUDA"
        raise PreconditionError("NO_DEVICE", text, "device")
    found = torch.cuda.get_device_capability(index)
    if found < LEAST_CAPABILITY:
        text = f"{name} has compute capability {found[0]}.{found[1]}; 8.0 or more is needed"
        raise PreconditionError("OLD_DEVICE", text, "device")
