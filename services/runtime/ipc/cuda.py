"""CUDA memory of one process in another: handles as JSON, passed once an importer."""

from __future__ import annotations

import json
import os
from typing import Any

import torch

from services.contract.errors import PreconditionError, UnavailableError

_BYTES = ("memory", "counter", "event")


def refuse_expandable_segments() -> None:
    """Raise PreconditionError where the allocator's memory cannot be exported."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if "expandable_segments:true" in os.environ.get(name, "").replace(" ", "").lower():
            text = f"{name} sets expandable_segments, which cannot be shared; unset it"
            raise PreconditionError("EXPANDABLE_SEGMENTS", text, name)


def export_block(block: torch.Tensor) -> bytes:
    """Return a handle of a block's memory for one importer; keep the block alive meanwhile."""
    refuse_expandable_segments()
    storage = block.untyped_storage()
    _, memory, size, start, counter, counter_at, event, is_synced = storage._share_cuda_()
    values = {
        "uuid": device_uuid(block.device),
        "memory": memory.hex(),
        "size": size,
        "start": start,
        "counter": counter.hex(),
        "counter_at": counter_at,
        "event": event.hex(),
        "is_synced": is_synced,
        "offset": block.storage_offset(),
    }
    return json.dumps(values).encode()


def import_block(handle: bytes, size_bytes: int) -> torch.Tensor:
    """Return the block behind a handle, on the same GPU whatever its index is here.

    Raises  UnavailableError if that GPU is not visible or the owner is gone.
    """
    values: dict[str, Any] = json.loads(handle)
    values |= {name: bytes.fromhex(values[name]) for name in _BYTES}
    device = _device_of(values["uuid"])
    try:
        storage = _open(values, device)
    except RuntimeError as error:
        text = "a CUDA handle cannot be opened; its owner ended or IPC is off; wire again"
        raise UnavailableError("CUDA_HANDLE", text) from error
    whole = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
    start = values["offset"]
    return whole[start : start + size_bytes]


def device_uuid(device: torch.device) -> str:
    """Return the id of a GPU that is the same in every process."""
    return str(torch.cuda.get_device_properties(device).uuid)


def _open(values: dict[str, Any], device: torch.device) -> torch.UntypedStorage:
    torch.cuda._lazy_init()
    return torch.UntypedStorage._new_shared_cuda(
        device.index,
        values["memory"],
        values["size"],
        values["start"],
        values["counter"],
        values["counter_at"],
        values["event"],
        values["is_synced"],
    )


def _device_of(uuid: str) -> torch.device:
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        if device_uuid(device) == uuid:
            return device
    text = "the owner's GPU is not visible here; give all stages of a group the same GPU"
    raise UnavailableError("CUDA_DEVICE", text)
