"""Operands of attention, made from a seed."""

from dataclasses import dataclass

import torch

from services.contract.limits import PAGE


@dataclass(frozen=True)
class AttentionCase:
    """Queries, pages, rings and page tables of one model."""

    q: torch.Tensor
    kv: torch.Tensor
    kv_ring: torch.Tensor
    page_table: torch.Tensor


def make_attention_case(
    rows: int,
    max_length: int,
    slots: int = 2,
    query_heads: int = 4,
    kv_heads: int = 2,
    dim: int = 64,
    layers: int = 2,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> AttentionCase:
    """Return normal operands; each slot has its own shuffled pages for `max_length` tokens."""
    generator = torch.Generator().manual_seed(seed)
    pages = -(-max_length // PAGE)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator).to(dtype)

    order = torch.randperm(slots * pages, generator=generator).to(torch.int32)
    return AttentionCase(
        q=normal(rows, query_heads, dim),
        kv=normal(slots * pages, 2, kv_heads, PAGE, dim),
        kv_ring=normal(slots, layers, 2, kv_heads, 32, dim),
        page_table=order.view(slots, pages),
    )
