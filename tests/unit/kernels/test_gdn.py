"""GDN on the CPU: scan, chain and replay are one recurrence, bit for bit."""

import random

import pytest
import torch

from services.contract.topology import Tree
from services.kernels import gdn
from services.kernels.cases import HYDRA27, make_tables, make_tree, random_tree
from services.kernels.gdn import reference
from services.kernels.gdn.cases import TINY, GdnCase, GdnShape, make_gdn_case

ODD = GdnShape(key_heads=1, value_heads=3, dk=24, dv=20)


def scan(case: GdnCase, trees: list[Tree], slots: list[int], rows: int = 32) -> torch.Tensor:
    """Return the core outputs of layer 1 as [B, rows, Hv, dv]."""
    out = torch.full((len(trees) * rows, *case.recurrent.shape[3:5]), torch.nan)
    tables = make_tables(trees, [100] * len(trees), slots)
    params = case.a_log[1], case.dt_bias[1]
    rings = case.mixed_ring, case.ab_ring
    gdn.scan(*rings, *params, case.recurrent, case.words, 1, tables, out)
    return out.view(len(trees), rows, *out.shape[1:])


def chain(case: GdnCase, slot: int, nodes: list[int], length: int) -> torch.Tensor:
    """Run ring rows of layer 1 as a prompt chunk of `length` rows; return its outputs."""
    mixed = torch.full((length, case.mixed_ring.shape[3]), torch.nan)
    ab = torch.full((length, 2 * case.a_log.shape[1]), torch.nan)
    mixed[: len(nodes)] = case.mixed_ring[slot, 1, nodes]
    ab[: len(nodes)] = case.ab_ring[slot, 1, nodes].flatten(1)
    out = torch.full((length, *case.recurrent.shape[3:5]), torch.nan)
    slots, counts = torch.tensor([[slot], [len(nodes)]], dtype=torch.int32)
    state = case.recurrent, case.words, 1
    gdn.chain(mixed, ab, case.a_log[1], case.dt_bias[1], *state, slots, counts, out)
    return out


def replay(case: GdnCase, slot: int, nodes: list[int]) -> torch.Tensor:
    """Replay a path; return the new states [L, Hv, dv, dk]."""
    case.path[slot, 2] = len(nodes)
    case.path[slot, 16 : 16 + len(nodes)] = torch.tensor(nodes, dtype=torch.int32)
    state = case.recurrent, case.words, case.path
    params = case.a_log, case.dt_bias
    gdn.replay(case.mixed_ring, case.ab_ring, *params, *state, torch.tensor([slot]).int())
    return case.recurrent[slot, 1 - int(case.words[slot, 2])]


@pytest.mark.parametrize("shape", [TINY, ODD], ids=["64", "odd"])
def test_scan_matches_reference(shape: GdnShape, seed: int) -> None:
    case, tree = make_gdn_case(shape, seed), make_tree(HYDRA27)
    expected = torch.full((32, shape.value_heads, shape.dv), torch.nan)
    tables = make_tables([tree], [100], [1])
    params = case.a_log[1], case.dt_bias[1], case.recurrent, case.words, 1, tables
    reference.scan(case.mixed_ring, case.ab_ring, *params, expected)
    torch.testing.assert_close(scan(case, [tree], [1])[0], expected, rtol=0, atol=5e-6)


def test_replay_matches_reference_and_leaves_the_active_set(seed: int) -> None:
    case, other = make_gdn_case(TINY, seed), make_gdn_case(TINY, seed)
    before = case.recurrent[1, 1].clone()
    nodes = [0, 1, 4, 9]
    state = replay(case, 1, nodes)
    other.path.copy_(case.path)
    args = other.mixed_ring, other.ab_ring, other.a_log, other.dt_bias
    slots = torch.tensor([1], dtype=torch.int32)
    reference.replay(*args, other.recurrent, other.words, other.path, slots)
    torch.testing.assert_close(state, other.recurrent[1, 0], rtol=0, atol=5e-6)
    assert torch.equal(case.recurrent[1, 1], before)


def test_scan_chain_and_replay_are_bitwise_equal_on_random_trees(seed: int) -> None:
    rng = random.Random(seed)
    case = make_gdn_case(TINY, seed)
    for _ in range(200):
        tree, slot = random_tree(rng), rng.randrange(2)
        nodes = list(tree.path_to(rng.randrange(tree.num_nodes)))
        before = case.recurrent[slot].clone()
        tree_out = scan(case, [tree], [slot])[0]
        after = replay(case, slot, nodes)[1].clone()
        chain_out = chain(case, slot, nodes, rng.choice((16, 32)))
        assert torch.equal(tree_out[nodes], chain_out[: len(nodes)])
        assert torch.equal(case.recurrent[slot, slot, 1], after)
        assert not tree_out[tree.num_nodes :].any() and not chain_out[len(nodes) :].any()
        case.recurrent[slot] = before


def test_steps_of_root_only_trees_equal_the_tree(seed: int) -> None:
    case, tree = make_gdn_case(TINY, seed), make_tree(HYDRA27)
    nodes = list(tree.path_to(27))
    expected = scan(case, [tree], [0])[0]
    final = replay(case, 0, nodes).clone()
    mixed, ab = case.mixed_ring.clone(), case.ab_ring.clone()
    for node in nodes:
        case.mixed_ring[0, :, 0], case.ab_ring[0, :, 0] = mixed[0, :, node], ab[0, :, node]
        for rows in (32, 1):
            alone = scan(case, [make_tree((-1,))], [0], rows)[0, 0]
            assert torch.equal(alone, expected[node])
        replay(case, 0, [0])
        case.words[0, 2] = 1 - case.words[0, 2]
    assert torch.equal(case.recurrent[0, int(case.words[0, 2])], final)


@pytest.mark.parametrize("batch", [2, 3, 4])
def test_batch_and_position_change_no_bit(batch: int, seed: int) -> None:
    rng = random.Random(seed)
    case = make_gdn_case(GdnShape(slots=4), seed)
    trees = [random_tree(rng) for _ in range(batch)]
    for _ in range(4):
        slots = rng.sample(range(4), batch)
        together = scan(case, trees, slots)
        for index, (tree, slot) in enumerate(zip(trees, slots, strict=True)):
            assert torch.equal(scan(case, [tree], [slot])[0], together[index])


def test_poison_in_rows_that_do_not_count_changes_no_bit(seed: int) -> None:
    case, tree = make_gdn_case(GdnShape(slots=3), seed), make_tree(HYDRA27)
    path = list(tree.path_to(17))
    expected, state = scan(case, [tree], [1])[0], replay(case, 1, path).clone()
    off_path = [node for node in range(32) if node not in path]
    for ring in (case.mixed_ring, case.ab_ring):
        ring[0], ring[2] = torch.nan, torch.nan
        ring[1, :, off_path] = torch.nan
    case.recurrent[0], case.recurrent[2], case.recurrent[1, 0] = torch.nan, torch.nan, torch.nan
    assert torch.equal(scan(case, [tree], [1])[0, path], expected[path])
    assert torch.equal(replay(case, 1, path), state)


def test_a_poisoned_ancestor_and_swapped_parents_show(seed: int) -> None:
    case, tree = make_gdn_case(TINY, seed), make_tree(HYDRA27)
    expected = scan(case, [tree], [1])[0]
    swapped = list(HYDRA27)
    swapped[12], swapped[14] = swapped[14], swapped[12]
    assert not torch.equal(scan(case, [make_tree(tuple(swapped))], [1])[0, 12], expected[12])
    case.mixed_ring[1, 1, 4] = torch.nan
    poisoned = scan(case, [tree], [1])[0]
    below = [node for node in range(28) if 4 in tree.path_to(node)]
    assert poisoned[below].isnan().all()
    assert not poisoned[[n for n in range(28) if n not in below]].isnan().any()


@pytest.mark.parametrize("word", [0, 1], ids=["epoch", "cycle"])
def test_replay_of_a_stale_path_changes_nothing(word: int, seed: int) -> None:
    case = make_gdn_case(TINY, seed)
    case.path[1, word] += 1
    assert replay(case, 1, [0, 1]).isnan().all()
    case.path[1, word] -= 1
    assert not replay(case, 1, [0, 1]).isnan().any()


def test_an_empty_chunk_leaves_the_state(seed: int) -> None:
    case = make_gdn_case(TINY, seed)
    before = case.recurrent[1, 1].clone()
    assert not chain(case, 1, [], 32).any()
    assert torch.equal(case.recurrent[1, 1], before)
