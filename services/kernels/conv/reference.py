"""The convolution in plain torch, window by window."""

import torch
import torch.nn.functional as F

from services.kernels.state_words import ACTIVE_SET
from services.kernels.tree_tables import LIVE, SLOT, TableViews


def taps(window: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return silu of the ordered taps of windows [..., 4, C], oldest row first, in fp32."""
    wide = torch.promote_types(window.dtype, torch.float32)
    rows, w = window.to(wide), weight.to(wide)
    total = rows[..., 0, :] * w[:, 0]
    for tap in range(1, 4):
        total = total + rows[..., tap, :] * w[:, tap]
    return F.silu(total)


def conv_tree(
    raw: torch.Tensor,
    ab: torch.Tensor,
    conv: torch.Tensor,
    words: torch.Tensor,
    layer: int,
    tables: TableViews,
    weight: torch.Tensor,
    raw_ring: torch.Tensor,
    mixed_ring: torch.Tensor,
    ab_ring: torch.Tensor,
) -> None:
    """Do what conv.conv_tree says."""
    batch = tables.block.shape[0]
    rows = raw.shape[0] // batch
    for index in range(batch):
        slot, live = int(tables.header[index, SLOT]), int(tables.header[index, LIVE])
        first = index * rows
        state = conv[slot, int(words[slot, ACTIVE_SET]), layer]
        raw_ring[slot, layer, :live] = raw[first : first + live]
        gates = ab[first : first + live]
        ab_ring[slot, layer, :live] = gates.reshape(live, *ab_ring.shape[3:])
        for node in range(live):
            depth = int(tables.depths[index, node])
            ancestors = tables.ancestors[index, node, max(0, depth - 3) : depth + 1].tolist()
            window = torch.cat([state, *[raw[first + row][None] for row in ancestors]])[-4:]
            mixed_ring[slot, layer, node] = taps(window, weight)


def conv_chain(
    raw: torch.Tensor,
    conv: torch.Tensor,
    words: torch.Tensor,
    layer: int,
    slots: torch.Tensor,
    counts: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Do what conv.conv_chain says."""
    length = raw.shape[0] // slots.numel()
    out.zero_()
    for index, slot in enumerate(slots.tolist()):
        count, first = int(counts[index]), index * length
        state = conv[slot, int(words[slot, ACTIVE_SET]), layer]
        rows = torch.cat([state, raw[first : first + count]])
        if count:
            windows = rows.unfold(0, 4, 1).transpose(1, 2)
            out[first : first + count] = taps(windows, weight)
        state.copy_(rows[-3:].clone())
