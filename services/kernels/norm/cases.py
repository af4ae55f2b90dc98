"""Operands of the row-local operations, made from a seed."""

import torch


def normal(
    *size: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return a normal tensor."""
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(size, generator=generator)).to(dtype)


def inverse_frequencies(rotary: int, theta: float = 1e7) -> torch.Tensor:
    """Return theta^(-2j / rotary), j < rotary / 2, in fp32."""
    return theta ** (-torch.arange(0, rotary, 2, dtype=torch.float32) / rotary)
