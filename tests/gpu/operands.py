"""Operands at the 27B shape, on the device."""

import torch

from services.contract.limits import PAGE
from services.kernels.attention.cases import AttentionCase
from services.kernels.cases import make_tables
from services.kernels.tree_tables import TableViews

DEVICE = torch.device("cuda")
HEADS, KV_HEADS, DIM = 24, 4, 256


def attention_case(
    rows: int, positions: int, slots: int = 1, layers: int = 1, seed: int = 0
) -> AttentionCase:
    """Return bf16 operands for `positions` tokens a slot, pages shuffled."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    pages = -(-positions // PAGE)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator, device=DEVICE, dtype=torch.bfloat16)

    order = torch.randperm(slots * pages, generator=generator, device=DEVICE).int()
    return AttentionCase(
        q=normal(rows, HEADS, DIM),
        kv=normal(slots * pages, 2, KV_HEADS, PAGE, DIM),
        kv_ring=normal(slots, layers, 2, KV_HEADS, 32, DIM),
        page_table=order.view(slots, pages),
    )


def tables_on_device(trees: list, lengths: list[int], slots: list[int]) -> TableViews:
    """Return the tables of a slab on the device."""
    return TableViews(make_tables(trees, lengths, slots).block.to(DEVICE))


def rms(x: torch.Tensor) -> float:
    """Return the root mean square."""
    return float(x.double().square().mean().sqrt())
