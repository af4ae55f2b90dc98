"""Synthetic operands of the component checks, and the ways each result is made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

import torch

from services.contract.tree import Tree
from services.kernels import gdn
from services.kernels.cases import HYDRA27, make_tables, make_tree
from services.kernels.gdn import reference
from services.kernels.gdn.cases import GdnCase, GdnShape, make_gdn_case
from services.kernels.state_words import PATH_NODES, PATH_NUM_NODES
from services.kernels.tree_tables import TableViews

TREE: Tree = make_tree(HYDRA27)
PATHS = [list(TREE.path_to(node)) for node in range(TREE.num_nodes)]


@dataclass(frozen=True)
class Results:
    """Outputs [L, 28, Hv, dv] of every node and states [28, L, Hv, dv, dk] of every frontier."""

    outputs: torch.Tensor
    states: torch.Tensor

    def digest(self) -> str:
        """Return the sha256 of every bit."""
        total = hashlib.sha256()
        for tensor in (self.outputs, self.states):
            total.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
        return total.hexdigest()


class Operands:
    """One operand set of 48 recurrent instances, on a device."""

    def __init__(self, rules: dict[str, Any], seed: int, scale: float, device: str) -> None:
        heads = (16, 48, 128, 128) if device == "cuda" else (2, 6, 64, 64)
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        shape = GdnShape(1, rules["layers"], *heads)
        case = make_gdn_case(shape, seed, dtype)
        moved = {f.name: getattr(case, f.name).to(device) for f in fields(case)}
        self.case = GdnCase(**moved)
        self.case.mixed_ring.mul_(scale)
        self.layers, self.device = shape.layers, device
        self.slots = torch.zeros(1, dtype=torch.int32, device=device)
        self.tables = TableViews(make_tables([TREE], [100], [0]).block.to(device))
        self.size = shape.value_heads, shape.dv

    def scan(self, layer: int) -> torch.Tensor:
        """Return the 32 rows of one layer, by the tree kernel."""
        c = self.case
        out = torch.full((32, *self.size), torch.nan, device=self.device)
        params = c.a_log[layer], c.dt_bias[layer], c.recurrent, c.words
        gdn.scan(c.mixed_ring, c.ab_ring, *params, layer, self.tables, out)
        return out

    def replay(self, nodes: list[int]) -> torch.Tensor:
        """Publish a path from the active set; return the other set [L, Hv, dv, dk]."""
        c = self.case
        c.recurrent[0, 1].fill_(torch.nan)
        c.path[0, PATH_NUM_NODES] = len(nodes)
        c.path[0, PATH_NODES : PATH_NODES + len(nodes)] = torch.tensor(nodes, dtype=torch.int32)
        params = c.a_log, c.dt_bias, c.recurrent, c.words, c.path, self.slots
        gdn.replay(c.mixed_ring, c.ab_ring, *params)
        return c.recurrent[0, 1].clone()

    def tree(self) -> Results:
        """Return what the tree scan and 28 publications give; padding rows must be zero."""
        rows = torch.stack([self.scan(layer) for layer in range(self.layers)])
        if rows[:, TREE.num_nodes :].any():
            raise ArithmeticError("a padding row is not zero")
        states = torch.stack([self.replay(path) for path in PATHS])
        return Results(rows[:, : TREE.num_nodes], states)

    def chain(self) -> Results:
        """Return the same by plain decoding: every path alone, row after row, in place."""
        c = self.case
        start = c.recurrent.clone()
        outputs, states = [], []
        for path in PATHS:
            out = torch.full((self.layers, 16, *self.size), torch.nan, device=self.device)
            for layer in range(self.layers):
                self._chain(layer, path, out[layer])
            outputs.append(out[:, len(path) - 1].clone())
            states.append(c.recurrent[0, 0].clone())
            c.recurrent.copy_(start)
        return Results(torch.stack(outputs, 1), torch.stack(states))

    def _chain(self, layer: int, path: list[int], out: torch.Tensor) -> None:
        c = self.case
        mixed = torch.zeros(16, c.mixed_ring.shape[3], dtype=c.mixed_ring.dtype, device=self.device)
        ab = torch.zeros(16, 2 * self.size[0], dtype=c.ab_ring.dtype, device=self.device)
        mixed[: len(path)] = c.mixed_ring[0, layer, path]
        ab[: len(path)] = c.ab_ring[0, layer, path].flatten(1)
        counts = torch.full_like(self.slots, len(path))
        params = c.a_log[layer], c.dt_bias[layer], c.recurrent, c.words
        gdn.chain(mixed, ab, *params, layer, self.slots, counts, out)

    def sequential(self, dtype: torch.dtype) -> Results:
        """Return the same by the plain torch recurrence in `dtype`."""
        c = self.case
        outputs, states = [], []
        for layer in range(self.layers):
            root, seen, rows = c.recurrent[0, 0, layer].to(dtype), [], []
            for node, parent in enumerate(TREE.parents):
                state = root if parent < 0 else seen[parent]
                mixed, (a, b) = c.mixed_ring[0, layer, node], c.ab_ring[0, layer, node]
                gates = c.a_log[layer], c.dt_bias[layer]
                core, after = reference.step(state, mixed, a, b, *gates)
                rows.append(core)
                seen.append(after)
            outputs.append(torch.stack(rows))
            states.append(torch.stack(seen))
        return Results(torch.stack(outputs), torch.stack(states, 1))
