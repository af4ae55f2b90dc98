"""One owner's weights in one flat block of bytes, which another process may map."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from services.contract.limits import ALIGN_BYTES
from services.model.checkpoint import Checkpoint
from services.model.parts import Part

Progress = Callable[[int, int], None]


def no_progress(done_bytes: int, total_bytes: int) -> None:
    """Ignore a progress report."""


@dataclass(frozen=True, slots=True)
class FlatWeights:
    """Hold a flat block and the views of its parts by name."""

    block: torch.Tensor
    views: Mapping[str, torch.Tensor]

    @classmethod
    def over(cls, parts: tuple[Part, ...], block: torch.Tensor) -> "FlatWeights":
        """Lay parts over a block of at least block_bytes(parts), each 256-byte aligned."""
        views, start = {}, 0
        for part in parts:
            raw = block[start : start + part.size_bytes]
            views[part.name] = raw.view(part.dtype).view(part.shape)
            start += _aligned(part.size_bytes)
        return cls(block, views)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.views[name]


def block_bytes(parts: tuple[Part, ...]) -> int:
    """Return the size of the block that holds these parts."""
    return sum(_aligned(part.size_bytes) for part in parts)


def empty_block(parts: tuple[Part, ...], device: torch.device | str) -> torch.Tensor:
    """Return a fresh aligned uint8 block for these parts."""
    size = block_bytes(parts)
    block = torch.empty(size + ALIGN_BYTES, dtype=torch.uint8, device=device)
    start = -block.data_ptr() % ALIGN_BYTES
    return block[start : start + size]


def fill(
    weights: FlatWeights,
    parts: tuple[Part, ...],
    checkpoint: Checkpoint,
    progress: Progress = no_progress,
) -> None:
    """Read the parts of a checkpoint into their views.

    Args    progress: called with (bytes done, bytes in all) after every part.
    Raises  CheckpointError naming the tensor or file that cannot be used.
    """
    total, done = sum(part.size_bytes for part in parts), 0
    for part in parts:
        rows, start = weights[part.name].view(-1), 0
        for name in part.sources:
            values = checkpoint.read(name).reshape(-1)
            rows[start : start + values.numel()] = values.to(rows.device, rows.dtype)
            start += values.numel()
        done += part.size_bytes
        progress(done, total)


def _aligned(size: int) -> int:
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES
