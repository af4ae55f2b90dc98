"""The gated delta rule in chunks, plain torch, differentiable; the yardstick of faster ones."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from models.recipe.settings import NORM_EPS

DeltaRule = Callable[..., torch.Tensor]


def chunked_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    chunk: int = 64,
) -> torch.Tensor:
    """Return the core outputs of every position.

    Shapes  q, k [B, T, H, K]; v, out [B, T, Hv, V]; decay (log), beta [B, T, Hv].
    Numbers fp32 inside, one cast at the end.
    """
    batch, length, heads, key_dim = k.shape
    num_values, value_dim = v.shape[2:]
    group = num_values // heads
    padding = -length % chunk
    q, k = (_spread(_unit(x.float()), group, padding) for x in (q, k))
    wide_v = F.pad(v.float().transpose(1, 2), (0, 0, 0, padding))
    decay, beta = (F.pad(x.float().transpose(1, 2), (0, padding)) for x in (decay, beta))
    count = (length + padding) // chunk
    shape = (batch, num_values, count, chunk)
    q = (q * key_dim**-0.5).reshape(*shape, key_dim)
    k, wide_v = k.reshape(*shape, key_dim), wide_v.reshape(*shape, value_dim)
    decay, beta = decay.reshape(shape).cumsum(-1), beta.reshape(*shape, 1)
    out = _run_chunks(q, k, wide_v, decay, beta)
    out = out.reshape(batch, num_values, count * chunk, value_dim)[:, :, :length]
    return out.transpose(1, 2).contiguous().to(v.dtype)


def _run_chunks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    batch, heads, count, chunk, key_dim = k.shape
    value_dim = v.shape[-1]
    future = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    between = (decay[..., :, None] - decay[..., None, :]).masked_fill(future, -torch.inf).exp()
    scaled = k * beta
    system = (scaled @ k.transpose(-1, -2)) * between
    right = torch.cat([v * beta, scaled * decay.exp()[..., None]], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    updates, reads = solved[..., :value_dim], solved[..., value_dim:]
    scores = (q @ k.transpose(-1, -2)) * between
    q_in = q * decay.exp()[..., None]
    k_out = k * (decay[..., -1:] - decay).exp()[..., None]
    end = decay[..., -1].exp()[..., None, None]
    state = torch.zeros(batch, heads, key_dim, value_dim, device=q.device)
    out = []
    for index in range(count):
        fresh = updates[:, :, index] - reads[:, :, index] @ state
        out.append(q_in[:, :, index] @ state + scores[:, :, index] @ fresh)
        state = state * end[:, :, index] + k_out[:, :, index].transpose(-1, -2) @ fresh
    return torch.stack(out, 2)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + NORM_EPS)


def _spread(x: torch.Tensor, group: int, padding: int) -> torch.Tensor:
    return F.pad(x.repeat_interleave(group, 2).transpose(1, 2), (0, 0, 0, padding))
