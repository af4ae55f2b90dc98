"""Operands, trees and float64 results of the GDN component benchmark."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from services.contract.limits import TABLE_WORDS
from services.contract.topology import NodeSource, Tree
from services.kernels.gdn.cases import GdnCase, GdnShape, make_gdn_case
from services.kernels.tree_tables import TableViews, build_tables

SEED: Final = 20260928
SHAPE: Final = GdnShape(slots=1, layers=48, key_heads=16, value_heads=48, dk=128, dv=128)
# The live rows of hydra27 in (depth, path) order.
HYDRA27: Final = (
    -1, 0, 0, 0, 1, 1, 1, 2, 3, 4, 4, 4, 7, 8, 9, 9, 9, 12, 14, 14, 14, 17, 18, 22, 23, 24, 25, 26,
)  # fmt: skip
PARENTS: Final[dict[str, tuple[int, ...]]] = {
    "chain12": tuple(range(-1, 11)),
    "tree8": HYDRA27[:9],
    "tree16": HYDRA27[:17],
    "hydra27": HYDRA27,
}


@dataclass(frozen=True)
class Problem:
    """One tree over 48 layers on a device."""

    tree: Tree
    case: GdnCase
    tables: TableViews
    slots: torch.Tensor
    out: torch.Tensor


def make_tree(parents: tuple[int, ...]) -> Tree:
    """Return the tree with these parents and arbitrary tokens."""
    count = len(parents)
    sources = (int(NodeSource.ROOT), *[int(NodeSource.TEST)] * (count - 1))
    return Tree(parents, tuple(range(count)), sources, (0.0,) * count)


def make_problem(name: str, device: torch.device, shape: GdnShape = SHAPE) -> Problem:
    """Return the operands of a named tree; bf16 rows, fp32 gates and states."""
    tree = make_tree(PARENTS[name])
    case = make_gdn_case(shape, SEED, torch.bfloat16)
    moved = GdnCase(**{key: value.to(device) for key, value in vars(case).items()})
    block = np.zeros((1, TABLE_WORDS), np.int32)
    build_tables(tree, 100, 0, 0, block[0])
    out = torch.full((shape.layers, 32, shape.value_heads, shape.dv), torch.nan, device=device)
    return Problem(
        tree,
        moved,
        TableViews(torch.from_numpy(block).to(device)),
        torch.zeros(1, dtype=torch.int32, device=device),
        out.to(torch.bfloat16),
    )


def set_path(problem: Problem, node: int) -> None:
    """Make the root-to-node path the accepted one."""
    nodes = problem.tree.path_to(node)
    problem.case.path[0, 2] = len(nodes)
    problem.case.path[0, 16 : 16 + len(nodes)] = torch.tensor(nodes, dtype=torch.int32)


@dataclass(frozen=True)
class Sequential:
    """Outputs [L, 32, Hv, dv] of every node and the state after chosen nodes."""

    outputs: torch.Tensor
    states: dict[int, torch.Tensor]


def sequential(problem: Problem, dtype: torch.dtype, keep: tuple[int, ...]) -> Sequential:
    """Run the usual recurrence node by node in `dtype`: decay, read, rank-one update, output."""
    case = problem.case
    heads, dv, dk = case.recurrent.shape[3:]
    mixed = case.mixed_ring[0].to(dtype)
    keys = (mixed.shape[-1] - heads * dv) // (2 * dk)
    q, k, v = mixed.split((keys * dk, keys * dk, heads * dv), -1)
    q, k = (_unit(x.unflatten(-1, (keys, dk))).repeat_interleave(heads // keys, 2) for x in (q, k))
    v = v.unflatten(-1, (heads, dv))
    a, b = case.ab_ring[0].to(dtype).unbind(2)
    raw = a + case.dt_bias.to(dtype)[:, None]
    decay = torch.exp(-case.a_log.to(dtype).exp()[:, None] * torch.nn.functional.softplus(raw))
    beta = torch.sigmoid(b)
    root = case.recurrent[0, int(case.words[0, 2])].to(dtype)
    states: list[torch.Tensor | None] = []
    outputs = torch.zeros(len(root), 32, heads, dv, dtype=dtype, device=root.device)
    last = {parent: node for node, parent in enumerate(problem.tree.parents)}
    for node, parent in enumerate(problem.tree.parents):
        before = root if parent < 0 else states[parent]
        assert before is not None
        state = before * decay[:, node, :, None, None]
        delta = v[:, node] - (state @ k[:, node, :, :, None])[..., 0]
        state = state + (beta[:, node, :, None] * delta)[..., None] * k[:, node, :, None]
        outputs[:, node] = (state @ (q[:, node] * dk**-0.5)[..., None])[..., 0]
        states.append(state)
        if parent >= 0 and last[parent] == node and parent not in keep:
            states[parent] = None
    kept = {node: state for node in keep if (state := states[node]) is not None}
    return Sequential(outputs, kept)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def cells_outside(
    ours: torch.Tensor, native: torch.Tensor, exact: torch.Tensor, dims: int
) -> tuple[int, int]:
    """Count cells outside the paired rule; a cell spans the last `dims` dimensions.

    E <= 1.10 E_native + 2^-24 M64 + 2^-149 for both the RMS and the largest error.
    Returns (cells outside, cells).
    """
    flat = [x.double().flatten(-dims) for x in (ours, native, exact)]
    error, base = flat[0] - flat[2], flat[1] - flat[2]
    outside = ~torch.isfinite(error).all(-1)
    for size in (_rms, _largest):
        limit = 1.10 * size(base) + 2.0**-24 * size(flat[2]) + 2.0**-149
        outside |= size(error) > limit
    return int(outside.sum()), outside.numel()


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(-1).sqrt()


def _largest(x: torch.Tensor) -> torch.Tensor:
    return x.abs().amax(-1)
