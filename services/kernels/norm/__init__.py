"""Row-local operations: norms, gates, rotary positions. One row never reads another.

Norms are fp32 inside with one cast at the end. Zero-centred weights: times (1 + w).
Shapes  R rows, d hidden, F intermediate, Hq / Hkv query / key-value heads of D, rot rotary dims.
        Inputs named x, z, qkv, gate_up may have strided rows (unit column stride).
"""

import torch

from services.kernels.dispatch import backend
from services.kernels.tree_tables import TableViews


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor) -> None:
    """Write x * rsqrt(mean x^2 + eps) * (1 + weight) to `out` [R, d]."""
    backend("norm", x.device.type).rms_norm(x, weight, eps, out)


def add_rms_norm(
    residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor
) -> None:
    """Add x to `residual` [R, d] in place and write the norm of the stored sum to `out`."""
    backend("norm", x.device.type).add_rms_norm(residual, x, weight, eps, out)


def gated_norm(
    core: torch.Tensor,
    z: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    activation: str,
    out: torch.Tensor,
) -> None:
    """Write, per value head, core * rsqrt(mean core^2 + eps) * weight * act(z).

    Shapes  core [R, Hv, dv], z, out [R, Hv * dv], weight [dv] (plain, not zero-centred).
    Args    activation: "silu" or "sigmoid".
    """
    backend("norm", core.device.type).gated_norm(core, z, weight, eps, activation, out)


def qk_norm_rope_ring(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    inv_freq: torch.Tensor,
    eps: float,
    tables: TableViews,
    kv_ring: torch.Tensor,
    layer: int,
    q: torch.Tensor,
) -> None:
    """Normalise and rotate queries and keys of B trees; stage keys and values in the ring.

    Shapes  qkv [B * T, Hq * 2D + 2 * Hkv * D]: per query head (query D | gate D), then keys,
            then values. inv_freq [rot / 2] fp32; q [B * T, Hq, D];
            kv_ring [S, A, 2, Hkv, 32, D], written at (slot, layer, :, :, node), live nodes only.
    Numbers the position of a node is committed_length + depth; NeoX halves in the first rot
            dims; angles are fp32. Padding rows of q: 0.
    """
    backend("norm", qkv.device.type).qk_norm_rope_ring(
        qkv, q_weight, k_weight, inv_freq, eps, tables, kv_ring, layer, q
    )


def qk_norm_rope_pages(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    inv_freq: torch.Tensor,
    eps: float,
    slots: torch.Tensor,
    starts: torch.Tensor,
    counts: torch.Tensor,
    page_table: torch.Tensor,
    kv: torch.Tensor,
    q: torch.Tensor,
) -> None:
    """Do the same for B runs of consecutive positions; store keys and values in their pages.

    Shapes  row b * T + i has position starts[b] + i and is padding if i >= counts[b];
            kv [P, 2, Hkv, 64, D] of one layer, page_table [S, max_pages] int32.
    Numbers equal to qk_norm_rope_ring bit for bit. Padding rows of q: 0; they store nothing.
    """
    backend("norm", qkv.device.type).qk_norm_rope_pages(
        qkv, q_weight, k_weight, inv_freq, eps, slots, starts, counts, page_table, kv, q
    )


def sigmoid_gate(attn: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor) -> None:
    """Write attn [R, Hq, D] * sigmoid(gate halves of qkv's query part) to `out` [R, Hq * D]."""
    backend("norm", attn.device.type).sigmoid_gate(attn, qkv, out)


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    """Write silu(gate) * up of gate_up [R, 2F] (gate | up) to `out` [R, F]."""
    backend("norm", gate_up.device.type).silu_mul(gate_up, out)
