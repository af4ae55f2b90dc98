"""Attention on the CPU: where a key lies, and what else is in the batch, change no bit."""

import random

import pytest
import torch

from services.contract.limits import PAGE
from services.contract.topology import Tree
from services.kernels import attention
from services.kernels.attention import reference
from services.kernels.attention.cases import AttentionCase, make_attention_case
from services.kernels.cases import HYDRA27, chain_tree, make_tables, make_tree, random_tree

BORDERS = [0, 1, 52, 63, 64, 65, 127, 128, 129, 300]


def attend(
    case: AttentionCase, trees: list[Tree], lengths: list[int], slots: list[int], rows: int = 32
) -> torch.Tensor:
    """Return the outputs of layer 1 as [B, rows, Hq, D]."""
    q = case.q[: len(trees) * rows]
    out = torch.full_like(q, torch.nan)
    tables = make_tables(trees, lengths, slots)
    attention.attend(q, case.kv, case.kv_ring, 1, case.page_table, tables, out)
    return out.view(len(trees), rows, *q.shape[1:])


def prefill(
    case: AttentionCase, q: torch.Tensor, slot: int, start: int, count: int
) -> torch.Tensor:
    """Return the outputs of a chunk of slot's rows start .. start + count - 1."""
    out = torch.full_like(q, torch.nan)
    slots, starts, counts = torch.tensor([[slot], [start], [count]], dtype=torch.int32)
    attention.attend_prefill(q, case.kv, case.page_table, slots, starts, counts, out)
    return out


def move_to_pages(case: AttentionCase, slot: int, nodes: list[int], length: int) -> None:
    """Copy ring rows of layer 1 to positions length, length + 1, ... of the pages."""
    for index, node in enumerate(nodes):
        page = case.page_table[slot, (length + index) // PAGE]
        case.kv[page, :, :, (length + index) % PAGE] = case.kv_ring[slot, 1, :, :, node]


@pytest.mark.parametrize("heads", [(4, 2, 64), (6, 1, 256), (2, 2, 20)], ids=str)
@pytest.mark.parametrize("length", [0, 63, 200])
def test_tree_matches_reference(heads: tuple[int, int, int], length: int, seed: int) -> None:
    query_heads, kv_heads, dim = heads
    sizes = {"query_heads": query_heads, "kv_heads": kv_heads, "dim": dim, "seed": seed}
    case, tree = make_attention_case(32, 320, **sizes), make_tree(HYDRA27)
    expected = torch.full_like(case.q, torch.nan)
    tables = make_tables([tree], [length], [1])
    reference.attend(case.q, case.kv, case.kv_ring, 1, case.page_table, tables, expected)
    out = attend(case, [tree], [length], [1])[0]
    torch.testing.assert_close(out, expected, rtol=0, atol=3e-6)


@pytest.mark.parametrize("start", [0, 40, 128])
def test_prefill_matches_reference(start: int, seed: int) -> None:
    case = make_attention_case(96, 256, seed=seed)
    expected = torch.full_like(case.q, torch.nan)
    slots, starts, counts = torch.tensor([[1], [start], [90]], dtype=torch.int32)
    args = case.q, case.kv, case.page_table, slots, starts, counts
    reference.attend_prefill(*args, expected)
    out = prefill(case, case.q, 1, start, 90)
    torch.testing.assert_close(out, expected, rtol=0, atol=3e-6)
    assert not out[90:].any()


@pytest.mark.parametrize("length", BORDERS)
def test_a_key_in_the_ring_equals_the_key_in_its_page(length: int, seed: int) -> None:
    rng = random.Random(seed)
    case = make_attention_case(32, 384, seed=seed)
    clean = case.kv.clone()
    for tree in (make_tree(HYDRA27), random_tree(rng), random_tree(rng), chain_tree(16)):
        expected = attend(case, [tree], [length], [1])[0]
        nodes = list(tree.path_to(rng.randrange(tree.num_nodes)))
        move_to_pages(case, 1, nodes, length)
        q = torch.zeros(16, *case.q.shape[1:])
        q[: len(nodes)] = case.q[nodes]
        assert torch.equal(prefill(case, q, 1, length, len(nodes))[: len(nodes)], expected[nodes])
        ring, queries = case.kv_ring.clone(), case.q.clone()
        for index, node in enumerate(nodes):
            case.kv_ring[1, 1, :, :, 0], case.q[0] = ring[1, 1, :, :, node], queries[node]
            for rows in (32, 1):
                alone = attend(case, [make_tree((-1,))], [length + index], [1], rows)[0, 0]
                assert torch.equal(alone, expected[node])
        case.kv_ring.copy_(ring)
        case.q.copy_(queries)
        case.kv.copy_(clean)


def test_chunks_of_any_size_give_the_same_bits(seed: int) -> None:
    rng = random.Random(seed)
    case = make_attention_case(200, 384, seed=seed)
    expected, done = prefill(case, case.q, 0, 100, 200), 0
    while done < 200:
        count = min(rng.choice((1, 7, 16, 64, 65)), 200 - done)
        q = torch.zeros(65, *case.q.shape[1:])
        q[:count] = case.q[done : done + count]
        part = prefill(case, q, 0, 100 + done, count)
        assert torch.equal(part[:count], expected[done : done + count])
        done += count


@pytest.mark.parametrize("batch", [2, 3, 4])
def test_batch_and_position_change_no_bit(batch: int, seed: int) -> None:
    rng = random.Random(seed)
    case = make_attention_case(32 * batch, 384, slots=4, seed=seed)
    trees = [random_tree(rng) for _ in range(batch)]
    lengths = [rng.choice(BORDERS) for _ in range(batch)]
    slots = rng.sample(range(4), batch)
    together = attend(case, trees, lengths, slots)
    for i in range(batch):
        part = AttentionCase(case.q[32 * i : 32 * i + 32], case.kv, case.kv_ring, case.page_table)
        assert torch.equal(attend(part, [trees[i]], [lengths[i]], [slots[i]])[0], together[i])


@pytest.mark.parametrize("length", [60, 64, 130])
def test_poison_in_rows_that_do_not_count_changes_no_bit(length: int, seed: int) -> None:
    case, tree = make_attention_case(32, 256, slots=3, seed=seed), make_tree(HYDRA27)
    path = list(tree.path_to(17))
    expected = attend(case, [tree], [length], [1])[0, path]
    off_path = [node for node in range(32) if node not in path]
    case.q[off_path] = torch.nan
    case.kv_ring[[0, 2]], case.kv_ring[:, 0] = torch.nan, torch.nan
    case.kv_ring[1, :, :, :, off_path] = torch.nan
    case.kv[case.page_table[[0, 2]].flatten()] = torch.nan
    last = case.page_table[1, length // PAGE :]
    case.kv[last[1:]] = torch.nan
    case.kv[last[0], :, :, length % PAGE :] = torch.nan
    assert torch.equal(attend(case, [tree], [length], [1])[0, path], expected)


def test_a_poisoned_ancestor_and_swapped_parents_show(seed: int) -> None:
    case, tree = make_attention_case(32, 256, seed=seed), make_tree(HYDRA27)
    expected = attend(case, [tree], [70], [1])[0]
    swapped = list(HYDRA27)
    swapped[12], swapped[14] = swapped[14], swapped[12]
    other = attend(case, [make_tree(tuple(swapped))], [70], [1])[0]
    assert not torch.equal(other[12], expected[12])
    case.kv_ring[1, 1, 1, :, 4] = torch.nan
    poisoned = attend(case, [tree], [70], [1])[0]
    below = [node for node in range(28) if 4 in tree.path_to(node)]
    assert poisoned[below].isnan().all()
    assert not poisoned[[n for n in range(28) if n not in below]].isnan().any()
