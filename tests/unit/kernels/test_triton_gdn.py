"""The plain-Triton GDN kernels, interpreted in fp32: one step in every schedule, bit for bit."""

import random

import pytest
import torch

from services.contract.topology import Tree
from services.kernels.cases import HYDRA27, chain_tree, make_tables, make_tree, random_tree
from services.kernels.gdn import kernel, reference
from services.kernels.gdn.cases import GdnCase, GdnShape, make_gdn_case

SHAPE = GdnShape(slots=2, layers=2, key_heads=1, value_heads=2, dk=32, dv=16)
LAYER = 1


def scan(case: GdnCase, trees: list[Tree], slots: list[int], schedule: str) -> torch.Tensor:
    """Return the outputs of LAYER as [B, 32, Hv, dv]."""
    out = torch.full((32 * len(trees), *case.recurrent.shape[3:5]), torch.nan)
    tables = make_tables(trees, [100] * len(trees), slots)
    gates = case.a_log[LAYER], case.dt_bias[LAYER]
    rings = case.mixed_ring, case.ab_ring
    kernel.scan(*rings, *gates, case.recurrent, case.words, LAYER, tables, out, schedule)
    return out.view(len(trees), 32, *out.shape[1:])


def expected_scan(case: GdnCase, trees: list[Tree], slots: list[int]) -> torch.Tensor:
    """Return the reference's outputs of LAYER."""
    out = torch.full((32 * len(trees), *case.recurrent.shape[3:5]), torch.nan)
    tables = make_tables(trees, [100] * len(trees), slots)
    gates = case.a_log[LAYER], case.dt_bias[LAYER]
    rings = case.mixed_ring, case.ab_ring
    reference.scan(*rings, *gates, case.recurrent, case.words, LAYER, tables, out)
    return out.view(len(trees), 32, *out.shape[1:])


def chain(case: GdnCase, slot: int, nodes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Run ring rows of LAYER as a chain on a copy; return its outputs and its state."""
    state = case.recurrent.clone()
    mixed = case.mixed_ring[slot, LAYER, nodes]
    ab = case.ab_ring[slot, LAYER, nodes].flatten(1)
    out = torch.full((len(nodes), *state.shape[3:5]), torch.nan)
    slots, counts = torch.tensor([[slot], [len(nodes)]], dtype=torch.int32)
    gates = case.a_log[LAYER], case.dt_bias[LAYER]
    kernel.chain(mixed, ab, *gates, state, case.words, LAYER, slots, counts, out)
    return out, state[slot, int(case.words[slot, 2]), LAYER]


def replay(case: GdnCase, slot: int, nodes: list[int]) -> torch.Tensor:
    """Replay a path; return the new states [L, Hv, dv, dk]."""
    case.path[slot, 2] = len(nodes)
    case.path[slot, 16 : 16 + len(nodes)] = torch.tensor(nodes, dtype=torch.int32)
    rings = case.mixed_ring, case.ab_ring, case.a_log, case.dt_bias
    slots = torch.tensor([slot], dtype=torch.int32)
    kernel.replay(*rings, case.recurrent, case.words, case.path, slots)
    return case.recurrent[slot, 1 - int(case.words[slot, 2])]


@pytest.mark.parametrize("schedule", ["one_pass", "two_level", "triangular"])
def test_scan_matches_the_reference(schedule: str, seed: int) -> None:
    case = make_gdn_case(SHAPE, seed)
    trees, slots = [make_tree(HYDRA27), Tree.root_only(3)], [1, 0]
    found = scan(case, trees, slots, schedule)
    expected = expected_scan(case, trees, slots)
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)
    assert torch.equal(found[1, 1:], torch.zeros_like(found[1, 1:]))


def test_schedules_chain_and_replay_are_bitwise_equal(seed: int) -> None:
    rng = random.Random(seed)
    trees = [make_tree(HYDRA27), chain_tree(12), random_tree(rng)]
    for tree in trees:
        case, slot = make_gdn_case(SHAPE, rng.randrange(1 << 30)), rng.randrange(2)
        outputs = scan(case, [tree], [slot], "one_pass")[0]
        assert torch.equal(outputs, scan(case, [tree], [slot], "two_level")[0])
        nodes = list(tree.path_to(rng.randrange(tree.num_nodes)))
        chained, state = chain(case, slot, nodes)
        assert torch.equal(chained, outputs[nodes])
        assert torch.equal(state, replay(case, slot, nodes)[LAYER])


def test_swapped_parents_change_the_outputs(seed: int) -> None:
    case = make_gdn_case(SHAPE, seed)
    right, wrong = make_tree((-1, 0, 0, 1)), make_tree((-1, 0, 0, 2))
    outputs = [scan(case, [tree], [0], "one_pass")[0] for tree in (right, wrong)]
    assert torch.equal(outputs[0][:3], outputs[1][:3])
    assert not torch.equal(outputs[0][3], outputs[1][3])


def test_only_ancestors_matter(seed: int) -> None:
    case, tree = make_gdn_case(SHAPE, seed), make_tree((-1, 0, 0, 1, 2))
    clean = scan(case, [tree], [0], "one_pass")[0]
    case.mixed_ring[0, LAYER, 2] = torch.nan
    case.mixed_ring[0, LAYER, 5:] = torch.nan
    dirty = scan(case, [tree], [0], "one_pass")[0]
    for node in (0, 1, 3):
        assert torch.equal(clean[node], dirty[node])
    assert dirty[4].isnan().all()


def test_stale_path_changes_nothing(seed: int) -> None:
    case = make_gdn_case(SHAPE, seed)
    case.path[1, 1] = 5
    before = case.recurrent.clone()
    replay(case, 1, [0])
    assert torch.equal(case.recurrent.view(torch.int32), before.view(torch.int32))
