"""Gated DeltaNet in plain torch, one node at a time; the source of truth for the kernels."""

import torch
import torch.nn.functional as F

from services.kernels.state_words import (
    ACTIVE_SET,
    CYCLE,
    EPOCH,
    PATH_CYCLE,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_NODES,
)
from services.kernels.tree_tables import LIVE, SLOT, TableViews


def step(
    state: torch.Tensor,
    mixed: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (out, next state) of one row.

    Shapes  state [Hv, dv, dk], mixed [C], a, b, a_log, dt_bias [Hv]; out [Hv, dv].
    Numbers in the dtype of `state` (fp32; fp64 for the yardstick).
    """
    num_heads, dv, dk = state.shape
    query, key, value = _split(mixed.to(state.dtype), num_heads, dv, dk)
    g = torch.exp(-a_log.to(state.dtype).exp() * F.softplus(a.to(state.dtype) + dt_bias))
    beta = torch.sigmoid(b.to(state.dtype))[:, None]
    g = g[:, None]
    r = (state @ key[..., None])[..., 0]
    c = (state @ query[..., None])[..., 0]
    u = beta * (value - g * r)
    out = g * c + u * (key * query).sum(-1, keepdim=True)
    return out, g[..., None] * state + u[..., None] * key[:, None, :]


def _split(
    mixed: torch.Tensor, num_heads: int, dv: int, dk: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    num_keys = (mixed.numel() - num_heads * dv) // (2 * dk)
    query, key, value = mixed.split((num_keys * dk, num_keys * dk, num_heads * dv))
    query = _l2norm(query.view(num_keys, dk)) * dk**-0.5
    key = _l2norm(key.view(num_keys, dk))
    group = num_heads // num_keys
    return (
        query.repeat_interleave(group, 0),
        key.repeat_interleave(group, 0),
        value.view(num_heads, dv),
    )


def _l2norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


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
    """Do what gdn.scan says, node by node."""
    batch = tables.block.shape[0]
    rows = out.view(batch, -1, *out.shape[1:])
    rows.zero_()
    for index in range(batch):
        slot = int(tables.header[index, SLOT])
        root = recurrent[slot, int(words[slot, ACTIVE_SET]), layer]
        states: list[torch.Tensor] = []
        for node in range(int(tables.header[index, LIVE])):
            parent = int(tables.parents[index, node])
            state = root if parent < 0 else states[parent]
            mixed, ab = mixed_ring[slot, layer, node], ab_ring[slot, layer, node]
            core, after = step(state, mixed, ab[0], ab[1], a_log, dt_bias)
            rows[index, node] = core
            states.append(after)


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
    """Do what gdn.chain says, row by row."""
    batch = slots.numel()
    length, num_heads = out.shape[0] // batch, out.shape[1]
    out.zero_()
    for index, slot in enumerate(slots.tolist()):
        state = recurrent[slot, int(words[slot, ACTIVE_SET]), layer]
        for row in range(index * length, index * length + int(counts[index])):
            a, b = ab[row, :num_heads], ab[row, num_heads:]
            core, after = step(state, mixed[row], a, b, a_log, dt_bias)
            out[row] = core
            state.copy_(after)


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
    """Do what gdn.replay says, layer by layer and node by node."""
    for slot in slots.tolist():
        if not _path_is_current(words[slot], path[slot]):
            continue
        active = int(words[slot, ACTIVE_SET])
        count = int(path[slot, PATH_NUM_NODES])
        nodes = path[slot, PATH_NODES : PATH_NODES + count].tolist()
        for layer in range(recurrent.shape[2]):
            state = recurrent[slot, active, layer]
            for node in nodes:
                mixed, ab = mixed_ring[slot, layer, node], ab_ring[slot, layer, node]
                _, state = step(state, mixed, ab[0], ab[1], a_log[layer], dt_bias[layer])
            recurrent[slot, 1 - active, layer] = state


def _path_is_current(words: torch.Tensor, path: torch.Tensor) -> bool:
    """Say whether a path [64] belongs to the slot's words [16]: same epoch, same cycle."""
    same_epoch = int(words[EPOCH]) == int(path[PATH_EPOCH])
    return same_epoch and int(words[CYCLE]) == int(path[PATH_CYCLE])
