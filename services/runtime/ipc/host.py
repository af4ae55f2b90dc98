"""Shared memory on the host: files without a name, which end with their last user."""

from __future__ import annotations

import mmap
import os
import warnings
from typing import Final

import torch

from services.contract.errors import UnavailableError

# Its owner may forbid others to write it (F_SEAL_FUTURE_WRITE).
_FLAGS: Final = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING


class SharedFile:
    """A file in the kernel's shared-memory file system that has no name.

    Other processes of the same user open it through this process's descriptor. It needs no
    removal: it is freed when the last process that holds or maps it ends, however it ends.
    """

    def __init__(self, label: str, size_bytes: int) -> None:
        self._descriptor = os.memfd_create(f"lumotree-{label}", _FLAGS)
        os.ftruncate(self._descriptor, size_bytes)
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def close(self) -> None:
        """Give the file up; mappings of it live on."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def map_file(path: str, size_bytes: int) -> torch.Tensor:
    """Return a shared file's bytes; writes are seen by every process that maps it.

    Raises  UnavailableError if its owner is gone or the file is too small.
    """
    try:
        if os.stat(path).st_size < size_bytes:
            text = f"the shared file is smaller than {size_bytes} bytes; wire again"
            raise UnavailableError("SHARED_FILE", text)
        return torch.from_file(path, shared=True, size=size_bytes, dtype=torch.uint8)
    except (OSError, RuntimeError) as error:
        text = f"a shared file cannot be mapped ({type(error).__name__}); wire again"
        raise UnavailableError("SHARED_FILE", text) from error


def import_file(path: str, size_bytes: int) -> torch.Tensor:
    """Return the bytes of another owner's file; read-only where writing it is forbidden.

    Numbers a write into a read-only mapping ends the process.
    Raises  UnavailableError if its owner is gone or the file is too small.
    """
    try:
        return map_file(path, size_bytes)
    except UnavailableError:
        return _map_readable(path, size_bytes)


def _map_readable(path: str, size_bytes: int) -> torch.Tensor:
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
    except (OSError, ValueError) as error:
        text = f"a shared file cannot be mapped ({type(error).__name__}); wire again"
        raise UnavailableError("SHARED_FILE", text) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a buffer that is not writable: that is the point
        return torch.frombuffer(mapped, dtype=torch.uint8)
