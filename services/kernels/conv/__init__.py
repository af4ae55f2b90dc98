"""Depthwise causal convolution of 4 taps and silu, with a window by ancestry or by order.

y_c(row) = silu(((w0 * x(-3) + w1 * x(-2)) + w2 * x(-1)) + w3 * x(0)), fp32, taps in this order.

Shapes  S slots, L GDN layers, C channels. conv [S, 2, L, 3, C]: last 3 raw rows, oldest first;
        the active set of slot s is words[s, ACTIVE_SET]. weight [C, 4].
"""

import torch

from services.kernels.dispatch import backend
from services.kernels.tree_tables import TableViews


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
    """Stage the GDN operands of one layer for B trees: raw rows, conv outputs, raw gates.

    Shapes  raw [B * T, C], ab [B * T, 2 * Hv] (rows may be strided), T = 32 (or 1);
            raw_ring, mixed_ring [S, L, 32, C], ab_ring [S, L, 32, 2, Hv], written at
            (slot, layer, node) for live nodes.
    Numbers a node's window is its 3 nearest ancestors, then the slot's conv state.
    """
    backend("conv", raw.device.type).conv_tree(
        raw, ab, conv, words, layer, tables, weight, raw_ring, mixed_ring, ab_ring
    )


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
    """Convolve the rows of a prompt chunk and move the active set to its last 3 raw rows.

    Shapes  raw [B * T, C] (rows may be strided), slots, counts [B] int32, out [B * T, C].
    Numbers equal to conv_tree bit for bit. Rows >= counts[b] are padding: out 0.
    """
    backend("conv", raw.device.type).conv_chain(raw, conv, words, layer, slots, counts, weight, out)
