"""The compute architecture that selects a row of the checked-in configuration tables."""

from functools import cache

import torch

INTERPRETED = 90


@cache
def device_arch(device: torch.device) -> int:
    """Return the compute capability as an integer (90, 121); 90 for interpreted kernels."""
    if device.type != "cuda":
        return INTERPRETED
    major, minor = torch.cuda.get_device_capability(device)
    return major * 10 + minor
