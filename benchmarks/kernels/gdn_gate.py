"""The correctness gate of the GDN benchmark; a red gate raises and nothing is timed."""

import torch

from benchmarks.kernels.gdn_data import Problem, Sequential, cells_outside, set_path
from services.kernels.gdn import kernel


class GateError(RuntimeError):
    """A kernel broke a promise; no figure may be printed."""


def bits(x: torch.Tensor) -> torch.Tensor:
    """Return the bit pattern of a tensor."""
    return x.contiguous().view(torch.int16 if x.dtype == torch.bfloat16 else torch.int32)


def scan(problem: Problem, schedule: str) -> torch.Tensor:
    """Return the outputs of all layers into poisoned memory."""
    case = problem.case
    problem.out.fill_(torch.nan)
    for layer in range(problem.out.shape[0]):
        gates = case.a_log[layer], case.dt_bias[layer]
        state = case.recurrent, case.words, layer, problem.tables, problem.out[layer]
        kernel.scan(case.mixed_ring, case.ab_ring, *gates, *state, schedule)
    return problem.out.clone()


def chain(problem: Problem, nodes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs [L, n, Hv, dv] and states [L, ...] of a path run as a prompt chain."""
    case = problem.case
    active = int(case.words[0, 2])
    state = case.recurrent.clone()
    out = torch.full_like(problem.out[:, : len(nodes)], torch.nan)
    counts = torch.tensor([len(nodes)], dtype=torch.int32, device=out.device)
    for layer in range(out.shape[0]):
        rows = case.mixed_ring[0, layer, nodes], case.ab_ring[0, layer, nodes].flatten(1)
        gates = case.a_log[layer], case.dt_bias[layer]
        kernel.chain(*rows, *gates, state, case.words, layer, problem.slots, counts, out[layer])
    return out, state[0, active].clone()


def replay(problem: Problem, node: int) -> torch.Tensor:
    """Return the states after replaying the path to a node, written over NaN."""
    case = problem.case
    set_path(problem, node)
    other = case.recurrent[0, 1 - int(case.words[0, 2])]
    other.fill_(torch.nan)
    rows = case.mixed_ring, case.ab_ring, case.a_log, case.dt_bias
    kernel.replay(*rows, case.recurrent, case.words, case.path, problem.slots)
    return other.clone()


def check(problem: Problem, exact: Sequential, native: Sequential) -> Sequential:
    """Check every promise and return what a sequential run of our kernels gives.

    Raises GateError if scan, two-level scan, replay and chain differ in a bit on any path, if an
           output lies outside the paired rule against torch, or if padding is not zero.
    """
    live = problem.tree.num_nodes
    outputs = scan(problem, "one_pass")
    if not torch.equal(bits(outputs), bits(scan(problem, "two_level"))):
        raise GateError("one_pass and two_level differ")
    if outputs[:, live:].count_nonzero():
        raise GateError("padding rows are not zero")
    states: dict[int, torch.Tensor] = {}
    for node in range(live):
        nodes = list(problem.tree.path_to(node))
        chained, state = chain(problem, nodes)
        if not torch.equal(bits(chained), bits(outputs[:, nodes])):
            raise GateError(f"outputs of the path to node {node} differ from its chain")
        if not torch.equal(bits(state), bits(replay(problem, node))):
            raise GateError(f"replay of the path to node {node} differs from its chain")
        if node in exact.states:
            states[node] = state
    native_outputs = native.outputs[:, :live].to(torch.bfloat16)
    fast = scan(problem, "triangular")
    for name, found in (("one_pass", outputs), ("triangular", fast)):
        outside, _ = cells_outside(found[:, :live], native_outputs, exact.outputs[:, :live], 1)
        if outside:
            raise GateError(f"{name}: {outside} outputs outside the paired rule")
    return Sequential(outputs, states)
