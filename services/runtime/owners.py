"""Who owns which memory, and how large it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from services.contract import pb
from services.contract.config import EngineConfig
from services.model.config import ModelConfig
from services.model.flat import block_bytes
from services.model.parts import target_parts
from services.runtime.arena import BufferSpec, layout
from services.runtime.buffers import committer_specs, drafter_specs, model_dtype, verifier_specs
from services.runtime.ipc.host import map_file

WEIGHTS: Final = "weights"


def arena_specs(owner: str, model: ModelConfig, config: EngineConfig) -> list[BufferSpec]:
    """Return the tensors of an owner's arena."""
    if owner == "verifier":
        return verifier_specs(model, config)
    if owner == "drafter":
        return drafter_specs(model, config)
    return committer_specs(config)


def weights_bytes(model: ModelConfig, config: EngineConfig) -> int:
    """Return the size of the target's weights, which the verifier lends."""
    return block_bytes(target_parts(model, model_dtype(config)))


def shared_sizes(model: ModelConfig, config: EngineConfig) -> dict[str, int]:
    """Return the size in bytes of every block that stages share."""
    owners = ("verifier", "drafter", "committer")
    sizes = {owner: layout(arena_specs(owner, model, config))[1] for owner in owners}
    return {**sizes, WEIGHTS: weights_bytes(model, config)}


def new_block(specs: Sequence[BufferSpec], device: str, path: str) -> torch.Tensor:
    """Return zeroed memory for an arena: a shared file on a host, a block of its own else."""
    return new_bytes(layout(specs)[1], device, path)


def new_bytes(size: int, device: str, path: str) -> torch.Tensor:
    """Return memory of a size: a shared file on a host, a block of its own else."""
    if path:
        return map_file(path, size)
    return torch.zeros(size, dtype=torch.uint8, device=device)


def weights_map(
    block: torch.Tensor, epoch: int, mode: str, handle: bytes
) -> pb.stage_pb2.BufferMap:
    """Return the map of the lent weights; their layout is that of the checkpoint's config."""
    return pb.stage_pb2.BufferMap(
        owner=WEIGHTS, epoch=epoch, mode=mode, size_bytes=block.numel(), handle=handle
    )
