"""One owner's memory in another process: export by a handle, import as a block of bytes."""

from __future__ import annotations

import torch

from services.contract.errors import InvalidField
from services.runtime.ipc import cuda, host

CPU_SHM = "cpu_shm"
CUDA_IPC = "cuda_ipc"


def transport_of(device: str) -> str:
    """Return the transport mode for memory on a device."""
    return CPU_SHM if device == "cpu" else CUDA_IPC


def export_block(block: torch.Tensor, mode: str, path: str) -> bytes:
    """Return the handle under which one importer may open a block.

    Args    path: the shared-memory file that the block maps, in mode cpu_shm.
    Raises  PreconditionError where the allocator's memory cannot be exported.
    """
    if mode == CPU_SHM:
        return path.encode()
    if mode == CUDA_IPC:
        return cuda.export_block(block)
    raise InvalidField("TRANSPORT", f"{mode!r}; use {CPU_SHM} or {CUDA_IPC}", "mode")


def import_block(handle: bytes, mode: str, size_bytes: int) -> torch.Tensor:
    """Return the bytes that an owner exported; they must never be resized.

    Raises  UnavailableError where the owner or its memory is gone.
    """
    if mode == CPU_SHM:
        return host.map_file(handle.decode(), size_bytes)
    if mode == CUDA_IPC:
        return cuda.import_block(handle, size_bytes)
    raise InvalidField("TRANSPORT", f"{mode!r}; use {CPU_SHM} or {CUDA_IPC}", "mode")
