"""Operands of the convolution, made from a seed."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ConvCase:
    """Rows, gates, states and rings of one model."""

    raw: torch.Tensor
    ab: torch.Tensor
    conv: torch.Tensor
    weight: torch.Tensor
    raw_ring: torch.Tensor
    mixed_ring: torch.Tensor
    ab_ring: torch.Tensor


def make_conv_case(
    rows: int,
    channels: int = 640,
    heads: int = 6,
    slots: int = 2,
    layers: int = 2,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> ConvCase:
    """Return normal operands; the rings hold NaN."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator).to(dtype)

    def poison(*size: int) -> torch.Tensor:
        return torch.full(size, torch.nan, dtype=dtype)

    return ConvCase(
        raw=normal(rows, channels),
        ab=normal(rows, 2 * heads),
        conv=normal(slots, 2, layers, 3, channels),
        weight=normal(channels, 4) * 0.5,
        raw_ring=poison(slots, layers, 32, channels),
        mixed_ring=poison(slots, layers, 32, channels),
        ab_ring=poison(slots, layers, 32, 2, heads),
    )
