"""The arms of the GDN component benchmark: ours and the peers behind one interface."""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from benchmarks.kernels.gdn_data import Problem
from benchmarks.peers.gdn_native import native_path_kernel
from benchmarks.peers.gdn_solve import (
    series_kernel,
    treewy_kernel,
    weaver_apply_kernel,
    weaver_prepare_kernel,
)
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


class _Peer:
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


class NativePaths(_Peer):
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


class TorchNodes(_Peer):
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


class Weaver(_Peer):
    """Ancestor-masked solve; commits by replaying the path (our replay kernel)."""

    def __init__(self, problem: Problem, precision: str) -> None:
        super().__init__(problem)
        self.name = f"Weaver-like masked solve, {precision} (re-implementation)"
        self.precision = precision
        self.inverse = self.scratch(self.heads, 32, 32)
        self.mixing = self.scratch(self.heads, 32, 32)
        self.gates = self.scratch(self.heads, 32)
        self.buffers = 2 * self.inverse.numel() * 4 / _MIB
        self.ours = Ours(problem, "one_pass")

    def verify(self) -> None:
        for layer in range(self.layers):
            scratch = self.inverse, self.mixing, self.gates
            weaver_prepare_kernel[(self.heads,)](
                *self.operands(layer),
                *scratch,
                **self.sizes,
                **self.masks,
                PRECISION=self.precision,
            )
            weaver_apply_kernel[(self.heads * self.dv // self.rows,)](
                *self.operands(layer),
                self.state[layer],
                *scratch,
                self.problem.out[layer],
                **self.sizes,
                BV=self.rows,
                PRECISION=self.precision,
                num_warps=8,
            )

    def commit(self) -> None:
        self.ours.commit()

    def committed(self) -> torch.Tensor:
        return self.ours.committed()


class Bole(_Peer):
    """Finite series; commits by replaying the path (our replay kernel)."""

    name = "Bole-like finite series (re-implementation)"
    buffers = 0.0

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.ours = Ours(problem, "one_pass")

    def verify(self) -> None:
        for layer in range(self.layers):
            series_kernel[(self.heads * self.dv // self.rows,)](
                *self.operands(layer),
                self.state[layer],
                self.problem.out[layer],
                **self.sizes,
                **self.masks,
                BV=self.rows,
                TERMS=max(self.problem.tree.depths),
                PRECISION="tf32",
                num_warps=8,
            )

    def commit(self) -> None:
        self.ours.commit()

    def committed(self) -> torch.Tensor:
        return self.ours.committed()


class TreeWY(_Peer):
    """One fused launch a layer; the path is committed inside the next verification."""

    name = "TreeWY-like fused solve (re-implementation)"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.factors = self.scratch(self.layers, self.heads, 32, self.dv)
        self.keys = self.scratch(self.layers, self.heads, 32, self.dk)
        self.decays = self.scratch(self.layers, self.heads, 32)
        for buffer in (self.factors, self.keys, self.decays):
            buffer.zero_()
        sizes = (self.factors, self.keys, self.decays)
        self.buffers = sum(x.numel() for x in sizes) * 4 / _MIB

    def verify(self) -> None:
        """Commit the previous path, then verify, in one launch a layer."""
        self._run(commit=True, verify=True)

    def verify_first(self) -> None:
        """Verify without a previous path."""
        self._run(commit=False, verify=True)

    def _run(self, commit: bool, verify: bool) -> None:
        for layer in range(self.layers):
            treewy_kernel[(self.heads,)](
                *self.operands(layer),
                self.problem.case.path,
                self.state[layer],
                self.factors[layer],
                self.keys[layer],
                self.decays[layer],
                self.problem.out[layer],
                **self.sizes,
                **self.masks,
                BV=min(32, self.dv),
                COMMIT=commit,
                VERIFY=verify,
                PRECISION="tf32",
            )

    def commit(self) -> None:
        """Leave the path to the next verification."""

    def flush(self) -> None:
        """Commit the path without a verification."""
        self._run(commit=True, verify=False)


class Sglang(_Peer):
    """SGLang 0.5.17's tree verification with parent indices; commit copies a state."""

    name = "SGLang tree verify (package)"
    commit = NativePaths.commit

    def __init__(self, problem: Problem, update: Callable[..., torch.Tensor]) -> None:
        super().__init__(problem)
        self.update = update
        self.live = problem.tree.num_nodes
        self.nodes = self.scratch(self.layers, self.live, self.heads, self.dv, self.dk)
        self.buffers = self.nodes.numel() * 4 / _MIB
        parents = [max(parent, 0) for parent in problem.tree.parents]
        device = self.state.device
        self.parents = torch.tensor([parents], dtype=torch.int32, device=device)
        self.index = torch.zeros(1, dtype=torch.int32, device=device)

    def verify(self) -> None:
        width, live = self.sizes["HK"] * self.dk, self.live
        for layer in range(self.layers):
            mixed, ab, a_log, dt_bias, _ = self.operands(layer)
            q, k, v = mixed[None, :live].split((width, width, self.heads * self.dv), -1)
            out = self.update(
                A_log=a_log,
                a=ab[:live, 0],
                dt_bias=dt_bias,
                softplus_beta=1.0,
                softplus_threshold=20.0,
                q=q.unflatten(-1, (-1, self.dk)),
                k=k.unflatten(-1, (-1, self.dk)),
                v=v.unflatten(-1, (-1, self.dv)),
                b=ab[:live, 1],
                initial_state_source=self.state[layer : layer + 1],
                initial_state_indices=self.index,
                use_qk_l2norm_in_kernel=True,
                disable_state_update=True,
                intermediate_states_buffer=self.nodes[layer : layer + 1],
                intermediate_state_indices=self.index,
                cache_steps=live,
                retrieve_parent_token=self.parents,
            )
            self.problem.out[layer, :live] = out.view(live, self.heads, self.dv)


class Fla(_Peer):
    """fla-core 0.6.0's fused recurrent kernel: chains only, no state of inner nodes."""

    name = "fla fused recurrent (package, chain, no commit)"
    buffers = 0.0

    def __init__(self, problem: Problem, recurrent: Callable[..., Any]) -> None:
        super().__init__(problem)
        self.recurrent = recurrent

    def verify(self) -> None:
        width, live = self.sizes["HK"] * self.dk, self.problem.tree.num_nodes
        for layer in range(self.layers):
            mixed, ab, a_log, dt_bias, _ = self.operands(layer)
            q, k, v = mixed[None, :live].split((width, width, self.heads * self.dv), -1)
            out, _ = self.recurrent(
                q=q.unflatten(-1, (-1, self.dk)).contiguous(),
                k=k.unflatten(-1, (-1, self.dk)).contiguous(),
                v=v.unflatten(-1, (-1, self.dv)).contiguous(),
                g=ab[None, :live, 0].contiguous(),
                beta=ab[None, :live, 1].contiguous(),
                A_log=a_log,
                dt_bias=dt_bias,
                initial_state=self.state[layer : layer + 1],
                use_qk_l2norm_in_kernel=True,
                use_gate_in_kernel=True,
                use_beta_sigmoid_in_kernel=True,
                state_v_first=True,
            )
            self.problem.out[layer, :live] = out[0]

    def commit(self) -> None:
        """Keep the state: the kernel stores none for inner nodes."""
