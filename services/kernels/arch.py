"""The compute architecture that selects a row of the checked-in configuration tables."""

from functools import cache

import torch

HOPPER = 90
SMALL = 121


@cache
def device_arch(device: torch.device) -> int:
    """Return the row of the tables for a device: 90 on Hopper and for interpreted kernels.

    Every other GPU takes the row of 121, whose kernels need at most 99 KB of shared memory.
    """
    if device.type != "cuda" or torch.cuda.get_device_capability(device) == (9, 0):
        return HOPPER
    return SMALL
