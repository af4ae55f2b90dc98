"""The solve-based arms of the GDN component benchmark."""

import torch

from benchmarks.kernels.gdn_arms import Ours, Peer
from benchmarks.kernels.gdn_data import Problem
from benchmarks.peers.gdn_solve import (
    series_kernel,
    treewy_kernel,
    weaver_apply_kernel,
    weaver_prepare_kernel,
)

_MIB = float(1 << 20)


class Weaver(Peer):
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


class Bole(Peer):
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


class TreeWY(Peer):
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
