"""Device memory of one owner: a flat block of bytes with named tensor views."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from services.contract import pb
from services.contract.errors import InvalidField
from services.contract.limits import ALIGN_BYTES


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """Name, shape and dtype of one tensor of an arena."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size_bytes(self) -> int:
        """Return the tensor's size without padding."""
        return math.prod(self.shape) * self.dtype.itemsize


def layout(specs: Sequence[BufferSpec]) -> tuple[dict[str, int], int]:
    """Return the byte offset of every tensor, each 256-byte aligned, and the total size."""
    offsets: dict[str, int] = {}
    end = 0
    for spec in specs:
        if spec.name in offsets:
            raise InvalidField("BUFFER", f"{spec.name} is listed twice; rename one", "buffers")
        offsets[spec.name] = end
        end += -(-spec.size_bytes // ALIGN_BYTES) * ALIGN_BYTES
    return offsets, max(end, ALIGN_BYTES)


class Arena:
    """One owner's tensors, allocated once; kernels read and write the views.

    Args    storage: uint8 block to lay the tensors over (shared memory, an
            imported block); a fresh zeroed block when absent.
    Raises  InvalidField when the block is too small or starts unaligned.
    """

    def __init__(
        self,
        owner: str,
        specs: Sequence[BufferSpec],
        device: str = "cpu",
        storage: torch.Tensor | None = None,
    ) -> None:
        offsets, size = layout(specs)
        if storage is None:
            storage = _aligned_block(size, device)
        _check_block(owner, storage, size)
        self.owner = owner
        self.storage = storage[:size]
        self._specs = {spec.name: spec for spec in specs}
        self._offsets = offsets
        self._views = {spec.name: self._view(spec) for spec in specs}

    @classmethod
    def mapped(cls, buffer_map: pb.stage_pb2.BufferMap, storage: torch.Tensor) -> Arena:
        """Return the views that a received buffer map names over `storage`.

        Raises  InvalidField when the map's offsets are not the arena's layout.
        """
        specs = [_spec_of(ref) for ref in buffer_map.buffers]
        arena = cls(buffer_map.owner, specs, storage=storage)
        for ref in buffer_map.buffers:
            if ref.offset_bytes != arena._offsets[ref.name]:
                message = f"{ref.name} lies at {ref.offset_bytes}; use one version everywhere"
                raise InvalidField("BUFFER", message, "offset_bytes")
        return arena

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole block."""
        return self.storage.numel()

    def poison(self, names: Sequence[str] | None = None) -> None:
        """Fill tensors with bytes 0xFF: NaN in every float type, -1 in integers."""
        for name in self._views if names is None else names:
            self._views[name].view(torch.uint8).fill_(0xFF)

    def buffer_map(self, epoch: int, mode: str, handle: bytes = b"") -> pb.stage_pb2.BufferMap:
        """Return the map that importers need, for one wiring generation."""
        return pb.stage_pb2.BufferMap(
            owner=self.owner,
            epoch=epoch,
            mode=mode,
            size_bytes=self.size_bytes,
            handle=handle,
            buffers=[self._ref(spec) for spec in self._specs.values()],
        )

    def _view(self, spec: BufferSpec) -> torch.Tensor:
        start = self._offsets[spec.name]
        raw = self.storage[start : start + spec.size_bytes]
        return raw.view(spec.dtype).view(spec.shape)

    def _ref(self, spec: BufferSpec) -> pb.stage_pb2.BufferRef:
        return pb.stage_pb2.BufferRef(
            name=spec.name,
            offset_bytes=self._offsets[spec.name],
            shape=list(spec.shape),
            dtype=str(spec.dtype).removeprefix("torch."),
        )


def _aligned_block(size: int, device: str) -> torch.Tensor:
    block = torch.zeros(size + ALIGN_BYTES, dtype=torch.uint8, device=device)
    start = -block.data_ptr() % ALIGN_BYTES
    return block[start : start + size]


def _check_block(owner: str, storage: torch.Tensor, size: int) -> None:
    if storage.dtype != torch.uint8 or storage.dim() != 1 or storage.numel() < size:
        message = f"{owner} arena needs {size} bytes, got {storage.numel()}; export it again"
        raise InvalidField("BUFFER", message, "storage")
    if storage.data_ptr() % ALIGN_BYTES:
        message = f"{owner} arena must start at a multiple of {ALIGN_BYTES} bytes"
        raise InvalidField("BUFFER", message, "storage")


def _spec_of(ref: pb.stage_pb2.BufferRef) -> BufferSpec:
    dtype = getattr(torch, ref.dtype, None)
    if not isinstance(dtype, torch.dtype):
        message = f"{ref.name} has an unknown dtype; use one version everywhere"
        raise InvalidField("BUFFER", message, "dtype")
    return BufferSpec(ref.name, tuple(ref.shape), dtype)
