"""Attention in plain torch, row by row, over gathered keys."""

import torch

from services.contract.limits import PAGE
from services.kernels.tree_tables import COMMITTED_LENGTH, LIVE, SLOT, TableViews


def softmax_row(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the attention of one row: q [Hq, D], keys and values [Hkv, n, D], all visible."""
    wide = torch.promote_types(q.dtype, torch.float32)
    group = q.shape[0] // keys.shape[0]
    rows = q.to(wide).unflatten(0, (-1, group)) * q.shape[1] ** -0.5
    scores = rows @ keys.to(wide).transpose(1, 2)
    core: torch.Tensor = scores.softmax(-1) @ values.to(wide)
    return core.flatten(0, 1)


def gather_pages(kv: torch.Tensor, pages: torch.Tensor, length: int) -> torch.Tensor:
    """Return keys and values [2, Hkv, length, D] of positions 0..length-1."""
    count = -(-length // PAGE)
    used = kv[pages[:count].long()].permute(1, 2, 0, 3, 4)
    return used.flatten(2, 3)[:, :, :length]


def attend(
    q: torch.Tensor,
    kv: torch.Tensor,
    kv_ring: torch.Tensor,
    layer: int,
    page_table: torch.Tensor,
    tables: TableViews,
    out: torch.Tensor,
) -> None:
    """Do what attention.attend says."""
    batch = tables.block.shape[0]
    rows = q.shape[0] // batch
    out.zero_()
    for index in range(batch):
        slot, live = int(tables.header[index, SLOT]), int(tables.header[index, LIVE])
        length = int(tables.header[index, COMMITTED_LENGTH])
        prefix = gather_pages(kv, page_table[slot], length)
        for node in range(live):
            depth = int(tables.depths[index, node])
            path = tables.ancestors[index, node, : depth + 1].long()
            own = kv_ring[slot, layer][:, :, path]
            keys, values = torch.cat([prefix, own], dim=2)
            row = index * rows + node
            out[row] = softmax_row(q[row], keys, values).to(out.dtype)


def attend_prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    counts: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Do what attention.attend_prefill says."""
    rows = q.shape[0] // slots.numel()
    out.zero_()
    for index, slot in enumerate(slots.tolist()):
        start, count = int(starts[index]), int(counts[index])
        keys, values = gather_pages(kv, page_table[slot], start + count)
        for i in range(count):
            row, seen = index * rows + i, start + i + 1
            core = softmax_row(q[row], keys[:, :seen], values[:, :seen])
            out[row] = core.to(out.dtype)
