"""The convolution on the CPU: windows by ancestry equal windows by order."""

import random

import pytest
import torch

from services.contract.topology import Tree
from services.kernels import conv
from services.kernels.cases import HYDRA27, chain_tree, make_tables, make_tree, random_tree
from services.kernels.conv import reference
from services.kernels.conv.cases import ConvCase, make_conv_case
from services.kernels.publish.cases import make_words


def run_tree(case: ConvCase, trees: list[Tree], slots: list[int]) -> torch.Tensor:
    """Return the mixed rings of layer 1 after a forward of the trees."""
    tables = make_tables(trees, [9] * len(trees), slots)
    rings = case.raw_ring, case.mixed_ring, case.ab_ring
    for ring in rings:
        ring.fill_(torch.nan)
    rows = case.raw[: 32 * len(trees)], case.ab[: 32 * len(trees)]
    words = make_words(case.conv.shape[0])
    conv.conv_tree(*rows, case.conv, words, 1, tables, case.weight, *rings)
    return case.mixed_ring[:, 1]


def run_chain(case: ConvCase, raw: torch.Tensor, count: int) -> torch.Tensor:
    """Convolve `raw` as a chunk of slot 1, layer 1."""
    out = torch.full_like(raw, torch.nan)
    slots, counts = torch.tensor([[1], [count]], dtype=torch.int32)
    words = make_words(case.conv.shape[0])
    conv.conv_chain(raw, case.conv, words, 1, slots, counts, case.weight, out)
    return out


def test_tree_matches_reference_and_stages_its_operands(seed: int) -> None:
    case, tree = make_conv_case(32, seed=seed), make_tree(HYDRA27)
    mixed = run_tree(case, [tree], [1])[1, :28].clone()
    assert torch.equal(case.raw_ring[1, 1, :28], case.raw[:28])
    assert torch.equal(case.ab_ring[1, 1, :28].flatten(1), case.ab[:28])
    assert case.mixed_ring[1, 1, 28:].isnan().all() and case.mixed_ring[1, 0].isnan().all()
    tables, rings = make_tables([tree], [9], [1]), (case.raw_ring, case.mixed_ring, case.ab_ring)
    state = case.conv, make_words(2), 1, tables, case.weight
    reference.conv_tree(case.raw, case.ab, *state, *rings)
    torch.testing.assert_close(mixed, case.mixed_ring[1, 1, :28], rtol=1e-6, atol=1e-6)


def test_tree_equals_chain_bitwise_on_random_trees(seed: int) -> None:
    rng = random.Random(seed)
    case = make_conv_case(32, channels=70, seed=seed)
    for _ in range(60):
        tree = random_tree(rng)
        before = case.conv.clone()
        nodes = list(tree.path_to(rng.randrange(tree.num_nodes)))
        mixed = run_tree(case, [tree], [1])[1, nodes].clone()
        raw = torch.full((32, 70), torch.nan)
        raw[: len(nodes)] = case.raw[nodes]
        out = run_chain(case, raw, len(nodes))
        assert torch.equal(out[: len(nodes)], mixed)
        assert not out[len(nodes) :].any()
        rows = torch.cat([before[1, 0, 1], case.raw[nodes]])
        assert torch.equal(case.conv[1, 0, 1], rows[-3:])
        case.conv.copy_(before)


def test_rows_may_be_columns_of_a_wider_product(seed: int) -> None:
    case = make_conv_case(32, seed=seed)
    tree = make_tree(HYDRA27)
    expected = run_tree(case, [tree], [0])[0, :28].clone()
    wide = torch.full((32, 700), torch.nan)
    wide[:, 5:645], wide[:, 650:662] = case.raw, case.ab
    tables, rings = make_tables([tree], [9], [0]), (case.raw_ring, case.mixed_ring, case.ab_ring)
    state = case.conv, make_words(2), 1, tables, case.weight
    conv.conv_tree(wide[:, 5:645], wide[:, 650:662], *state, *rings)
    assert torch.equal(case.mixed_ring[0, 1, :28], expected)
    assert torch.equal(case.ab_ring[0, 1, :28].flatten(1), case.ab[:28])


def test_chunks_of_any_size_equal_one_chunk(seed: int) -> None:
    rng = random.Random(seed)
    case = make_conv_case(64, channels=32, seed=seed)
    before = case.conv.clone()
    whole = run_chain(case, case.raw, 64)
    state = case.conv.clone()
    case.conv.copy_(before)
    parts, done = [], 0
    while done < 64:
        count = min(rng.choice((0, 1, 2, 3, 9)), 64 - done)
        raw = torch.full((16, 32), torch.nan)
        raw[:count] = case.raw[done : done + count]
        parts.append(run_chain(case, raw, count)[:count])
        done += count
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(case.conv, state)


@pytest.mark.parametrize("batch", [2, 4])
def test_batch_and_position_change_no_bit(batch: int, seed: int) -> None:
    rng = random.Random(seed)
    case = make_conv_case(32 * batch, channels=64, slots=4, seed=seed)
    trees = [random_tree(rng) for _ in range(batch)]
    slots = rng.sample(range(4), batch)
    together = run_tree(case, trees, slots).clone()
    for index, (tree, slot) in enumerate(zip(trees, slots, strict=True)):
        rows = slice(32 * index, 32 * index + 32)
        alone = ConvCase(**{**vars(case), "raw": case.raw[rows], "ab": case.ab[rows]})
        live = slice(tree.num_nodes)
        assert torch.equal(run_tree(alone, [tree], [slot])[slot, live], together[slot, live])


def test_a_poisoned_ancestor_reaches_three_levels_and_no_further(seed: int) -> None:
    case = make_conv_case(32, channels=32, seed=seed)
    case.raw[2] = torch.nan
    case.raw[10:] = torch.nan
    mixed = run_tree(case, [chain_tree(10)], [1])[1]
    assert mixed[2:6].isnan().all()
    assert not mixed[[0, 1, 6, 7, 8, 9]].isnan().any()
