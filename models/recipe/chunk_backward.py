"""Two parts of the chunked delta rule's backward in torch, for use with fla's forward kernels.

Legend: B windows, N chunks of C tokens, H key heads, G value heads a key head, K, V dims;
decays are cumulative within a chunk and in log2.
"""

import torch


def query_key_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out_gradient: torch.Tensor,
    states: torch.Tensor,
    state_gradients: torch.Tensor,
    decay: torch.Tensor,
    value_gradient: torch.Tensor,
    scale: float,
    chunk: int,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of q, k, the WY reads w, and the decay, within chunks."""
    batch, length, heads, key_dim = k.shape
    group, count = v.shape[2] // heads, length // chunk
    shape = (batch, count, heads, group)
    q, k = _split(q, count, chunk, heads, 1), _split(k, count, chunk, heads, 1)
    v, do, dv = (_split(x, count, chunk, heads, group) for x in (v, out_gradient, value_gradient))
    h, dh = (x.reshape(*shape, key_dim, -1).to(v.dtype) for x in (states, state_gradients))
    g = _split_gate(decay, count, chunk, heads, group)
    end = g[..., -1:]
    past = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    between = _between(g, past)
    ds = ((do @ v.transpose(-1, -2)).float() * between * scale).to(q.dtype)
    h_t = h.transpose(-1, -2)
    k_all, q_all = (x.expand(*shape, chunk, key_dim) for x in (k, q))
    dq = (do @ h_t).float() * (torch.exp2(g) * scale)[..., None] + (ds @ k_all).float()
    dk = (v @ dh.transpose(-1, -2)).float() * torch.exp2(end - g)[..., None]
    d_end = (h.float() * dh.float()).sum((-1, -2)) * torch.exp2(end[..., 0])
    d_end = d_end + (dk * k.float()).sum((-1, -2))
    dk = dk + (ds.transpose(-1, -2) @ q_all).float()
    dw = -(dv @ h_t)
    dg = (dq * q.float()).sum(-1) - (dk * k.float()).sum(-1)
    last = (torch.arange(chunk, device=q.device) == chunk - 1).float()
    dg = (dg + last * d_end[..., None]).permute(0, 1, 4, 2, 3).reshape(batch, length, -1)
    dq, dk = (x.sum(3, keepdim=True).to(q.dtype) for x in (dq, dk))
    return _join(dq), _join(dk), _join(dw), dg


def factor_backward(
    k: torch.Tensor,
    v: torch.Tensor,
    beta: torch.Tensor,
    inverse: torch.Tensor,
    read_gradient: torch.Tensor,
    update_gradient: torch.Tensor,
    decay: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of k, v, beta and the decay through the WY factors."""
    batch, length, heads, key_dim = k.shape
    chunk, dtype = inverse.shape[-1], k.dtype
    group, count = v.shape[2] // heads, length // chunk
    k = _split(k, count, chunk, heads, 1).expand(batch, count, heads, group, chunk, key_dim)
    v, dw, du = (_split(x, count, chunk, heads, group) for x in (v, read_gradient, update_gradient))
    a = _split(inverse, count, chunk, heads, group).to(dtype)
    b = _split_gate(beta, count, chunk, heads, group)[..., None]
    g = _split_gate(decay, count, chunk, heads, group)
    grown = torch.exp2(g)[..., None]
    k_wide, a_t = k.float(), a.transpose(-1, -2)
    k_read = k_wide * (b * grown)
    dk_read, dv_beta = (a_t @ dw.to(dtype)).float(), (a_t @ du.to(dtype)).float()
    da = _inverse_backward(a_t, k_read, v, b, dw, du, g)
    dk_beta = (da.to(dtype) @ k).float()
    dk = dk_read * (grown * b) + dk_beta * b
    dk = dk + (da.to(dtype).transpose(-1, -2) @ (k_wide * b).to(dtype)).float()
    dbeta = (dk_read * k_wide * grown).sum(-1) + (dv_beta * v.float()).sum(-1)
    dbeta = dbeta + (dk_beta * k_wide).sum(-1)
    weighted = da * ((k @ k.transpose(-1, -2)).float() * b)
    dg = (dk_read * k_read).sum(-1) + weighted.sum(-1) - weighted.sum(-2)
    dbeta, dg = (x.permute(0, 1, 4, 2, 3).reshape(batch, length, -1) for x in (dbeta, dg))
    dv = (dv_beta * b).to(v.dtype)
    return _join(dk.sum(3, keepdim=True).to(dtype)), _join(dv), dbeta.to(beta.dtype), dg


def _inverse_backward(
    a_t: torch.Tensor,
    k_read: torch.Tensor,
    v: torch.Tensor,
    b: torch.Tensor,
    dw: torch.Tensor,
    du: torch.Tensor,
    g: torch.Tensor,
) -> torch.Tensor:
    """Return the gradient of the strictly lower system whose inverse is `a`."""
    dtype, chunk = a_t.dtype, a_t.shape[-1]
    da = (dw.to(dtype) @ k_read.to(dtype).transpose(-1, -2)).float()
    da = da + (du.to(dtype) @ (v.float() * b).to(dtype).transpose(-1, -2)).float()
    strict = torch.ones(chunk, chunk, dtype=torch.bool, device=a_t.device).tril(-1)
    da = torch.where(strict, da, 0.0).to(dtype)
    return -((a_t @ (da @ a_t)).float() * _between(g, strict))


def _between(g: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    return torch.exp2((g[..., :, None] - g[..., None, :]).masked_fill(~kept, -torch.inf))


def _split(x: torch.Tensor, count: int, chunk: int, heads: int, group: int) -> torch.Tensor:
    """Return [B, T, H * G, D] as [B, N, H, G, C, D]."""
    return x.reshape(x.shape[0], count, chunk, heads, group, x.shape[-1]).permute(0, 1, 3, 4, 2, 5)


def _split_gate(x: torch.Tensor, count: int, chunk: int, heads: int, group: int) -> torch.Tensor:
    """Return [B, T, H * G] as [B, N, H, G, C], fp32."""
    return x.float().reshape(x.shape[0], count, chunk, heads, group).permute(0, 1, 3, 4, 2)


def _join(x: torch.Tensor) -> torch.Tensor:
    batch, count, heads, group, chunk, dim = x.shape
    return x.permute(0, 1, 4, 2, 3, 5).reshape(batch, count * chunk, heads * group, dim)
