"""The arms that call kernels of installed packages."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.kernels.gdn_arms import NativePaths, Peer
from benchmarks.kernels.gdn_data import Problem

_MIB = float(1 << 20)


class Sglang(Peer):
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


class Fla(Peer):
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
