"""Operands of the GDN kernels, made from a seed."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class GdnShape:
    """Sizes of one GDN model."""

    slots: int = 2
    layers: int = 2
    key_heads: int = 2
    value_heads: int = 6
    dk: int = 64
    dv: int = 64

    @property
    def channels(self) -> int:
        """Return the width of a mixed row: q | k | v."""
        return 2 * self.key_heads * self.dk + self.value_heads * self.dv


TINY = GdnShape()
LUMO_TINY = GdnShape(slots=4, layers=6)
QWEN_27B = GdnShape(slots=1, layers=1, key_heads=16, value_heads=48, dk=128, dv=128)


@dataclass(frozen=True)
class GdnCase:
    """Operands of one model: rings, gates, states, words and paths of every slot."""

    mixed_ring: torch.Tensor
    ab_ring: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    recurrent: torch.Tensor
    words: torch.Tensor
    path: torch.Tensor


def make_gdn_case(shape: GdnShape, seed: int, dtype: torch.dtype = torch.float32) -> GdnCase:
    """Return operands of ordinary size with warm states; the inactive sets hold NaN.

    Slot s has active set s % 2, epoch 1, cycle 0; its path is the root alone.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator)

    s, layers, heads = shape.slots, shape.layers, shape.value_heads
    recurrent = 0.3 * normal(s, 2, layers, heads, shape.dv, shape.dk)
    words, path = torch.zeros(s, 16, dtype=torch.int32), torch.zeros(s, 64, dtype=torch.int32)
    words[:, 0] = path[:, 0] = path[:, 2] = 1
    words[:, 2] = torch.arange(s) % 2
    for slot in range(s):
        recurrent[slot, 1 - slot % 2] = torch.nan
    return GdnCase(
        mixed_ring=normal(s, layers, 32, shape.channels).to(dtype),
        ab_ring=normal(s, layers, 32, 2, heads).to(dtype),
        a_log=torch.rand(layers, heads, generator=generator) * 3 - 2,
        dt_bias=normal(layers, heads),
        recurrent=recurrent,
        words=words,
        path=path,
    )
