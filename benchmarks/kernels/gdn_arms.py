"""The arms of the GDN component benchmark: ours and those that keep every node's state."""

from typing import Protocol

import torch

from benchmarks.kernels.gdn_data import Problem
from benchmarks.peers.gdn_native import native_path_kernel
from services.kernels import tree_tables
from services.kernels.gdn import kernel

_MIB = float(1 << 20)


class Arm(Protocol):
    """Verify a tree over all layers, then commit the accepted path."""

    name: str
    buffers: float

    def reset(self) -> None:
        """Restore the state that every measurement starts from."""

    def verify(self) -> None:
        """Write problem.out of every layer."""

    def commit(self) -> None:
        """Make the accepted path's state durable."""

    def committed(self) -> torch.Tensor:
        """Return the durable states [L, Hv, dv, dk] after verify and commit."""


class Ours:
    """Our kernels: a scan schedule, and the replay that publishes."""

    def __init__(self, problem: Problem, schedule: str) -> None:
        self.problem, self.schedule = problem, schedule
        self.name = f"LumoTree {schedule}"
        rows = problem.case.mixed_ring.numel() + problem.case.ab_ring.numel()
        cuts = 16 * problem.case.recurrent[0, 0, 0].numel() * 4 * (schedule == "two_level")
        self.buffers = (2 * rows + cuts) / _MIB

    def reset(self) -> None:
        """Nothing to restore: the replay writes the other set."""

    def verify(self) -> None:
        case, out = self.problem.case, self.problem.out
        for layer in range(out.shape[0]):
            rows = case.mixed_ring, case.ab_ring, case.a_log[layer], case.dt_bias[layer]
            state = case.recurrent, case.words, layer, self.problem.tables
            kernel.scan(*rows, *state, out[layer], self.schedule)

    def commit(self) -> None:
        case = self.problem.case
        kernel.replay(
            case.mixed_ring,
            case.ab_ring,
            case.a_log,
            case.dt_bias,
            case.recurrent,
            case.words,
            case.path,
            self.problem.slots,
        )

    def committed(self) -> torch.Tensor:
        case = self.problem.case
        return case.recurrent[0, 1 - int(case.words[0, 2])]


class Peer:
    """State copy, launch constants and per-layer operands shared by the peers."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        case = problem.case
        self.source = case.recurrent[0, int(case.words[0, 2])]
        self.state = self.source.clone()
        self.layers, self.heads, self.dv, self.dk = self.state.shape
        self.rows = min(64, self.dv)
        keys = (case.mixed_ring.shape[-1] - self.heads * self.dv) // (2 * self.dk)
        self.sizes = {"HK": keys, "HV": self.heads, "DK": self.dk, "DV": self.dv}
        self.masks = {"ANCESTORS": tree_tables.ANCESTORS, "DEPTHS": tree_tables.DEPTHS}

    def operands(self, layer: int) -> tuple[torch.Tensor, ...]:
        case = self.problem.case
        rows = case.mixed_ring[0, layer], case.ab_ring[0, layer]
        return (*rows, case.a_log[layer], case.dt_bias[layer], self.problem.tables.block)

    def scratch(self, *size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.float32, device=self.state.device)

    def reset(self) -> None:
        """Restore the state that every measurement starts from."""
        self.state.copy_(self.source)

    def committed(self) -> torch.Tensor:
        return self.state


class NativePaths(Peer):
    """Native path cover storing every node's state; the accepted node's state is copied."""

    name = "native path cover (re-implementation)"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.nodes = self.scratch(self.layers, 32, self.heads, self.dv, self.dk)
        self.buffers = self.nodes.numel() * 4 / _MIB

    def verify(self) -> None:
        tables = {
            "PATHS": tree_tables.LEAF_PATHS,
            "LENGTHS": tree_tables.PATH_LENGTH,
            "FORKS": tree_tables.PATH_FORK,
            "OWN": tree_tables.PATH_OWN,
        }
        for layer in range(self.layers):
            for level, paths in ((0, 1), (1, 12)):
                native_path_kernel[(self.heads * self.dv // 8, paths)](
                    *self.operands(layer),
                    self.state[layer],
                    self.nodes[layer],
                    self.problem.out[layer],
                    **self.sizes,
                    **tables,
                    BV=8,
                    LEVEL=level,
                    num_warps=1,
                )

    def commit(self) -> None:
        path = self.problem.case.path[0]
        last = path.index_select(0, 15 + path[2:3].long()).long()
        torch.index_select(self.nodes, 1, last, out=self.state.unsqueeze(1))


class TorchNodes(Peer):
    """Node by node in torch, every node's state stored."""

    name = "torch node by node"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.nodes = self.scratch(self.layers, 32, self.heads, self.dv, self.dk)
        self.buffers = self.nodes.numel() * 4 / _MIB

    def verify(self) -> None:
        group = self.heads // self.sizes["HK"]
        width = self.sizes["HK"] * self.dk
        for layer in range(self.layers):
            mixed, ab, a_log, dt_bias, _ = self.operands(layer)
            q, k, v = mixed.float().split((width, width, self.heads * self.dv), -1)
            q, k = (x.view(32, -1, self.dk) for x in (q, k))
            q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
            q, k = (x.repeat_interleave(group, 1) for x in (q * self.dk**-0.5, k))
            v, ab = v.view(32, self.heads, self.dv), ab.float()
            decay = torch.exp(-a_log.exp() * torch.nn.functional.softplus(ab[:, 0] + dt_bias))
            beta = torch.sigmoid(ab[:, 1])
            for node, parent in enumerate(self.problem.tree.parents):
                before = self.state[layer] if parent < 0 else self.nodes[layer, parent]
                after = torch.mul(before, decay[node, :, None, None], out=self.nodes[layer, node])
                read = (after @ k[node, :, :, None])[..., 0]
                delta = beta[node, :, None] * (v[node] - read)
                after.addcmul_(delta[..., None], k[node, :, None])
                self.problem.out[layer, node] = (after @ q[node, :, :, None])[..., 0]

    commit = NativePaths.commit
