"""Pick the backend module of an operation by the device of its operands."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


@cache
def backend(op: str, device: str) -> ModuleType:
    """Import the module of `services/kernels/<op>` that serves a device type.

    Returns `kernel` (Triton) for "cuda"; else `cpu` (numba) where the operation has one and
            numba is installed; else `reference` (torch).
    """
    package = f"services.kernels.{op}"
    if device == "cuda":
        return import_module(f"{package}.kernel")
    if find_spec("numba") and find_spec(f"{package}.cpu"):
        return import_module(f"{package}.cpu")
    return import_module(f"{package}.reference")
