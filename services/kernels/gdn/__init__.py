"""Gated DeltaNet: the recurrent step over a tree, a chain of prompt rows, or an accepted path.

One step, the same function in scan, chain and replay, on the undecayed parent tile S [dv, dk]:
    k = l2norm(k), q = l2norm(q) * dk^-0.5, x * rsqrt(sum x^2 + 1e-6)
    g = exp(-exp(a_log) * softplus(a + dt_bias)), beta = sigmoid(b)
    r = S k, c = S q, u = beta * (v - g * r), o = g * c + u * (k . q), S' = fma(u, k, g * S)
A leaf needs no S'. All of it in fp32; v head h uses key head h // (Hv / Hk).

Shapes  S slots, L GDN layers, C = 2 * Hk * dk + Hv * dv channels: q | k | v; ab = a | b.
        recurrent [S, 2, L, Hv, dv, dk] fp32, dk contiguous; words [S, 16] int32; the active
        set of slot s is words[s, ACTIVE_SET].
"""

import torch

from services.kernels.dispatch import backend
from services.kernels.tree_tables import TableViews


def scan(
    mixed_ring: torch.Tensor,
    ab_ring: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    recurrent: torch.Tensor,
    words: torch.Tensor,
    layer: int,
    tables: TableViews,
    out: torch.Tensor,
    schedule: str = "one_pass",
) -> None:
    """Write the core outputs of one layer for every node of B trees; the state stays.

    Shapes  mixed_ring [S, L, 32, C], ab_ring [S, L, 32, 2, Hv]: rows of conv.conv_tree, read at
            (slot, layer, node). a_log, dt_bias [Hv] fp32. out [B * T, Hv, dv], T = 32 (or 1).
    Args    schedule: "one_pass", "two_level", or "triangular" (fast mode only); the CPU has one.
    Numbers a node's bits depend on its root path and the slot's state only. Padding rows: 0.
    Order   "triangular" starts on a GPU while the launch before it ends: of its operands, that
            launch may write the rings only (conv.conv_tree does).
    """
    backend("gdn", out.device.type).scan(
        mixed_ring, ab_ring, a_log, dt_bias, recurrent, words, layer, tables, out, schedule
    )


def chain(
    mixed: torch.Tensor,
    ab: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    recurrent: torch.Tensor,
    words: torch.Tensor,
    layer: int,
    slots: torch.Tensor,
    counts: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Run the rows of a prompt chunk in order and update the active set in place.

    Shapes  mixed [B * T, C], ab [B * T, 2 * Hv] (rows may be strided), slots, counts [B] int32,
            out [B * T, Hv, dv].
    Numbers equal to scan and replay bit for bit. Rows >= counts[b] are padding: out 0.
    """
    backend("gdn", out.device.type).chain(
        mixed, ab, a_log, dt_bias, recurrent, words, layer, slots, counts, out
    )


def replay(
    mixed_ring: torch.Tensor,
    ab_ring: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    recurrent: torch.Tensor,
    words: torch.Tensor,
    path: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Advance every layer along the accepted path: read the active set, write the other one.

    Shapes  a_log, dt_bias [L, Hv]; path [S, 64] int32 (state_words), slots [B] int32.
    Numbers equal to scan and chain bit for bit. A path whose epoch or cycle is not that of the
            slot's words changes nothing.
    """
    backend("gdn", recurrent.device.type).replay(
        mixed_ring, ab_ring, a_log, dt_bias, recurrent, words, path, slots
    )
