"""One owner's memory in another process: export by a handle, import as a block of bytes."""

from __future__ import annotations

from typing import Final

import torch

from services.contract.errors import InvalidField
from services.runtime.ipc import cuda, host

CPU_SHM: Final = "cpu_shm"
CUDA_IPC: Final = "cuda_ipc"
# In these an importer never writes: publications are launched by the state's owner.
CPU_SHM_RO: Final = "cpu_shm_ro"
CUDA_IPC_RO: Final = "cuda_ipc_ro"
_HOST: Final = (CPU_SHM, CPU_SHM_RO)
_DEVICE: Final = (CUDA_IPC, CUDA_IPC_RO)


def transport_of(device: str) -> str:
    """Return the mode to try first for memory on a device."""
    return CPU_SHM if device == "cpu" else CUDA_IPC


def read_only(mode: str) -> str:
    """Return the mode to try where importers cannot write in `mode`."""
    return CPU_SHM_RO if mode in _HOST else CUDA_IPC_RO


def is_read_only(mode: str) -> bool:
    """Say whether importers never write in a mode."""
    return mode in (CPU_SHM_RO, CUDA_IPC_RO)


def export_block(block: torch.Tensor, mode: str, path: str) -> bytes:
    """Return the handle under which one importer may open a block.

    Args    path: the shared-memory file that the block maps, on a host.
    Raises  PreconditionError where the allocator's memory cannot be exported.
    """
    if mode in _HOST:
        return path.encode()
    if mode in _DEVICE:
        return cuda.export_block(block)
    raise _unknown(mode)


def import_block(handle: bytes, mode: str, size_bytes: int) -> torch.Tensor:
    """Return the bytes that an owner exported; they must never be resized.

    Raises  UnavailableError where the owner or its memory is gone.
    """
    if mode in _HOST:
        return host.import_file(handle.decode(), size_bytes)
    if mode in _DEVICE:
        return cuda.import_block(handle, size_bytes)
    raise _unknown(mode)


def _unknown(mode: str) -> InvalidField:
    return InvalidField("TRANSPORT", f"{mode!r}; use one of {', '.join(_HOST + _DEVICE)}", "mode")
