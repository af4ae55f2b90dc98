"""Show what the paired rule says of one fp32 recurrence summed in two orders, on a CPU.

Torch's recurrence runs twice along chain12, the second time with the columns of dk permuted; both
are paired with the other. Run: python -m benchmarks.kernels.gdn_rule
"""

import dataclasses

import torch

from benchmarks.kernels.gdn_data import Problem, cells_outside, make_problem, sequential
from services.kernels.gdn.cases import GdnShape

SHAPE = GdnShape(slots=1, layers=6, key_heads=16, value_heads=48, dk=128, dv=128)
NODES = (0, 4, 11)


def permuted(problem: Problem, order: torch.Tensor) -> Problem:
    """Return the problem with the columns of keys, queries and states in another order."""
    case = problem.case
    heads = 2 * SHAPE.key_heads
    mixed = case.mixed_ring.clone()
    keys = mixed[..., : heads * SHAPE.dk].unflatten(-1, (heads, SHAPE.dk))
    keys.copy_(keys[..., order])
    states = case.recurrent[..., order].contiguous()
    moved = dataclasses.replace(case, mixed_ring=mixed, recurrent=states)
    return dataclasses.replace(problem, case=moved)


def main() -> None:
    """Print the cells outside the rule, each order as native in turn."""
    problem = make_problem("chain12", torch.device("cpu"), SHAPE)
    order = torch.randperm(SHAPE.dk, generator=torch.Generator().manual_seed(0))
    exact, plain = (sequential(problem, kind, NODES) for kind in (torch.float64, torch.float32))
    other = sequential(permuted(problem, order), torch.float32, NODES)
    for node in NODES:
        state = other.states[node][..., torch.argsort(order)]
        sides = (state, plain.states[node]), (plain.states[node], state)
        found = [cells_outside(*side, exact.states[node], 2) for side in sides]
        print(f"path of {node + 1}: {found[0][0]} and {found[1][0]} of {found[0][1]} cells outside")


if __name__ == "__main__":
    main()
