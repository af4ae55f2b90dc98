"""Grouped-query attention over paged keys and, for trees, the candidate ring.

A key of position p lies in its page (page_table[slot, p // 64], row p % 64) if
p < committed_length; a candidate lies in the ring at its node. Which of the two holds it
changes no bit: blocks sit at absolute positions.

Shapes  Hq query heads, Hkv key-value heads; head h reads kv head h // (Hq / Hkv); scale D^-0.5.
        kv [P, 2, Hkv, 64, D] of one layer; page_table [S, max_pages] int32.
Numbers softmax in fp32, blocks in ascending order; masked keys are dropped by select.
"""

import torch

from services.kernels.dispatch import backend
from services.kernels.tree_tables import TableViews


def attend(
    q: torch.Tensor,
    kv: torch.Tensor,
    kv_ring: torch.Tensor,
    layer: int,
    page_table: torch.Tensor,
    tables: TableViews,
    out: torch.Tensor,
) -> None:
    """Attend from every node of B trees to its prefix and its own ancestors, self included.

    Shapes  q, out [B * T, Hq, D], T = 32 (or 1); kv_ring [S, A, 2, Hkv, 32, D], read at
            (slot, layer).
    Numbers padding rows: 0.
    """
    backend("attention", q.device.type).attend(q, kv, kv_ring, layer, page_table, tables, out)


def attend_prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    counts: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Attend from B runs of consecutive positions whose keys are all in pages already.

    Shapes  q, out [B * T, Hq, D]; slots, starts, counts [B] int32. Row b * T + i has position
            starts[b] + i, sees positions <= its own, and is padding (out 0) if i >= counts[b].
    """
    backend("attention", q.device.type).attend_prefill(
        q, kv, page_table, slots, starts, counts, out
    )
