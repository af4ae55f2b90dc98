"""The row-local operations in plain torch."""

import torch
import torch.nn.functional as F

from services.contract.limits import PAGE
from services.kernels.tree_tables import COMMITTED_LENGTH, LIVE, SLOT, TableViews


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _unit(x: torch.Tensor, eps: float) -> torch.Tensor:
    wide = _wide(x)
    return wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor) -> None:
    """Do what norm.rms_norm says."""
    out.copy_(_unit(x, eps) * (1 + _wide(weight)))


def add_rms_norm(
    residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor
) -> None:
    """Do what norm.add_rms_norm says."""
    residual.add_(x)
    rms_norm(residual, weight, eps, out)


def gated_norm(
    core: torch.Tensor,
    z: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    activation: str,
    out: torch.Tensor,
) -> None:
    """Do what norm.gated_norm says."""
    wide = _wide(z)
    gate = (F.silu(wide) if activation == "silu" else torch.sigmoid(wide)).view(core.shape)
    out.copy_((_unit(core, eps) * _wide(weight) * gate).flatten(1))


def qk_norm_rope(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    positions: torch.Tensor,
    inv_freq: torch.Tensor,
    eps: float,
    num_kv: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return q [R, Hq, D], k and v [R, Hkv, D], in fp32, of rows at `positions` [R]."""
    dim = q_weight.numel()
    width = num_kv * dim
    query, key, value = qkv.split((qkv.shape[1] - 2 * width, width, width), dim=1)
    query = query.unflatten(1, (-1, 2 * dim))[..., :dim]
    angles = positions[:, None, None].to(inv_freq.dtype) * inv_freq
    normed_q = _unit(query, eps) * (1 + _wide(q_weight))
    normed_k = _unit(key.unflatten(1, (-1, dim)), eps) * (1 + _wide(k_weight))
    value = _wide(value.unflatten(1, (-1, dim)))
    return _rotate(normed_q, angles), _rotate(normed_k, angles), value


def _rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    half = angles.shape[-1]
    low, high, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], -1)


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
    """Do what norm.qk_norm_rope_ring says."""
    batch = tables.block.shape[0]
    rows = qkv.shape[0] // batch
    q.zero_()
    for index in range(batch):
        slot, live = int(tables.header[index, SLOT]), int(tables.header[index, LIVE])
        positions = tables.header[index, COMMITTED_LENGTH] + tables.depths[index, :live]
        part = slice(index * rows, index * rows + live)
        query, key, value = qk_norm_rope(
            qkv[part], q_weight, k_weight, positions, inv_freq, eps, kv_ring.shape[3]
        )
        q[part] = query.to(q.dtype)
        kv_ring[slot, layer, 0, :, :live] = key.transpose(0, 1).to(kv_ring.dtype)
        kv_ring[slot, layer, 1, :, :live] = value.transpose(0, 1).to(kv_ring.dtype)


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
    """Do what norm.qk_norm_rope_pages says."""
    rows = qkv.shape[0] // slots.numel()
    q.zero_()
    for index, slot in enumerate(slots.tolist()):
        count = int(counts[index])
        positions = int(starts[index]) + torch.arange(count, device=qkv.device)
        part = slice(index * rows, index * rows + count)
        query, key, value = qk_norm_rope(
            qkv[part], q_weight, k_weight, positions, inv_freq, eps, kv.shape[2]
        )
        q[part] = query.to(q.dtype)
        pages = page_table[slot, positions // PAGE].long()
        kv[pages, 0, :, positions % PAGE] = key.to(kv.dtype)
        kv[pages, 1, :, positions % PAGE] = value.to(kv.dtype)


def sigmoid_gate(attn: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor) -> None:
    """Do what norm.sigmoid_gate says."""
    _, heads, dim = attn.shape
    gate = qkv[:, : heads * 2 * dim].unflatten(1, (heads, 2 * dim))[..., dim:]
    out.copy_((_wide(attn) * torch.sigmoid(_wide(gate))).flatten(1))


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    """Do what norm.silu_mul says."""
    gate, up = _wide(gate_up).chunk(2, dim=1)
    out.copy_(F.silu(gate) * up)
