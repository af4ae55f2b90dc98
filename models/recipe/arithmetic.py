"""The layers as plain functions of tensors, so that each can be compiled on its own.

Legend: B windows, T tokens, d hidden, H heads, D head dim.
"""

import torch
import torch.nn.functional as F

from models.recipe.settings import NORM_EPS, Config


def rms_norm(x: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Return the zero-centred norm, fp32 inside."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NORM_EPS)
    return (wide * scale * (1.0 + offset.float())).to(x.dtype)


def mlp(
    x: torch.Tensor, norm: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """Return x plus its gated feed-forward."""
    h = rms_norm(x, norm)
    return x + F.linear(F.silu(F.linear(h, gate)) * F.linear(h, up), down)


def gdn_inputs(
    x: torch.Tensor,
    norm: torch.Tensor,
    in_qkv: torch.Tensor,
    in_z: torch.Tensor,
    in_b: torch.Tensor,
    in_a: torch.Tensor,
    conv: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    key_width: int,
    key_dim: int,
    value_dim: int,
) -> tuple[torch.Tensor, ...]:
    """Return q, k, v [B, T, H, D], log decay and beta [B, T, Hv] fp32, and z."""
    batch, length, _ = x.shape
    h = rms_norm(x, norm)
    gates = F.linear(h, torch.cat([in_b, in_a])).float()
    y = _conv(F.linear(h, in_qkv), conv).to(x.dtype)
    q, k, v = y.split([key_width, key_width, y.shape[-1] - 2 * key_width], -1)
    num_heads = in_b.shape[0]
    beta = torch.sigmoid(gates[..., :num_heads])
    decay = -torch.exp(a_log.float()) * F.softplus(gates[..., num_heads:] + dt_bias.float())
    shape = (batch, length, -1)
    return (
        q.reshape(*shape, key_dim).contiguous(),
        k.reshape(*shape, key_dim).contiguous(),
        v.reshape(*shape, value_dim).contiguous(),
        decay,
        beta,
        F.linear(h, in_z),
    )


def gdn_output(
    x: torch.Tensor,
    core: torch.Tensor,
    z: torch.Tensor,
    gated_norm: torch.Tensor,
    out: torch.Tensor,
    *feed_forward: torch.Tensor,
) -> torch.Tensor:
    """Return x plus the gated, projected core output, then plus its feed-forward."""
    batch, length, heads, dim = core.shape
    wide = core.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NORM_EPS)
    wide = gated_norm.float() * wide * F.silu(z.reshape(batch, length, heads, dim).float())
    x = x + F.linear(wide.to(x.dtype).reshape(batch, length, heads * dim), out)
    return mlp(x, *feed_forward)


def rope_tables(config: Config, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin of shape positions.shape + (rotary dims,), fp32."""
    rope = config["rope_parameters"]
    rotary = int(config["head_dim"] * rope["partial_rotary_factor"])
    steps = torch.arange(0, rotary, 2, device=positions.device, dtype=torch.float32)
    angles = positions.float()[..., None] / rope["rope_theta"] ** (steps / rotary)
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def attention_inputs(
    x: torch.Tensor,
    norm: torch.Tensor,
    in_q: torch.Tensor,
    in_k: torch.Tensor,
    in_v: torch.Tensor,
    q_norm: torch.Tensor,
    k_norm: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    dim: int,
) -> tuple[torch.Tensor, ...]:
    """Return q, k, v [B, T, H, D] with positions applied, and the output gate [B, T, H * D]."""
    batch, length, _ = x.shape
    h = rms_norm(x, norm)
    q, gate = F.linear(h, in_q).reshape(batch, length, -1, 2 * dim).chunk(2, -1)
    k = F.linear(h, in_k).reshape(batch, length, -1, dim)
    v = F.linear(h, in_v).reshape(batch, length, -1, dim)
    q = _rotate(rms_norm(q, q_norm), cos, sin)
    return q, _rotate(rms_norm(k, k_norm), cos, sin), v, gate.reshape(batch, length, -1)


def attention_block(
    x: torch.Tensor,
    norm: torch.Tensor,
    in_q: torch.Tensor,
    in_k: torch.Tensor,
    in_v: torch.Tensor,
    out: torch.Tensor,
    q_norm: torch.Tensor,
    k_norm: torch.Tensor,
    feed_forward: tuple[torch.Tensor, ...],
    cos: torch.Tensor,
    sin: torch.Tensor,
    dim: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the block's output and its keys and values."""
    q, k, v, gate = attention_inputs(x, norm, in_q, in_k, in_v, q_norm, k_norm, cos, sin, dim)
    batch, length, heads, _ = q.shape
    group = heads // k.shape[2]
    keys = k.repeat_interleave(group, 2).transpose(1, 2)
    values = v.repeat_interleave(group, 2).transpose(1, 2)
    o = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, is_causal=True)
    o = o.transpose(1, 2).reshape(batch, length, heads * dim) * torch.sigmoid(gate)
    return mlp(x + F.linear(o, out), *feed_forward), k, v


def block_loss(
    logits: torch.Tensor, labels: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss sum and the gradient of (sum * scale) with respect to the logits.

    Args    labels: -1 is ignored.
    """
    wide = logits.float()
    total = torch.logsumexp(wide, -1)
    counted, known = labels >= 0, labels.clamp(min=0)
    picked = wide.gather(-1, known[:, None])[:, 0]
    loss = torch.where(counted, total - picked, 0.0).sum()
    columns = torch.arange(wide.shape[-1], device=wide.device)
    gradient = torch.exp(wide - total[:, None]) - (columns[None, :] == known[:, None]).float()
    gradient = gradient * (counted.float() * scale)[:, None]
    return loss, gradient.to(logits.dtype)


def _conv(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    taps, length = weight.shape[-1], rows.shape[1]
    padded, w = F.pad(rows, (0, 0, taps - 1, 0)).float(), weight.float()
    total = padded[:, :length] * w[:, 0, 0]
    for tap in range(1, taps):
        total = total + padded[:, tap : tap + length] * w[:, 0, tap]
    return F.silu(total)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rotary = cos.shape[-1]
    cos, sin = cos.unsqueeze(-2).to(x.dtype), sin.unsqueeze(-2).to(x.dtype)
    turned, rest = x[..., :rotary], x[..., rotary:]
    halves = torch.cat([-turned[..., rotary // 2 :], turned[..., : rotary // 2]], -1)
    return torch.cat([turned * cos + halves * sin, rest], -1)
