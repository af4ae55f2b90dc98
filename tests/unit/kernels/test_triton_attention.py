"""The attention kernels, interpreted in fp32: against the reference, and their own bits."""

import random

import pytest
import torch
import triton
import triton.language as tl

from services.contract.limits import PAGE, TABLE_WORDS
from services.contract.topology import Tree
from services.kernels.attention import kernel, reference
from services.kernels.attention.cases import AttentionCase, make_attention_case
from services.kernels.attention.kernel_items import blocks_of, word_of
from services.kernels.cases import HYDRA27, chain_tree, make_tables, make_tree, random_tree
from services.kernels.tree_tables import (
    COMMITTED_LENGTH,
    NUM_PATHS,
    PATH_LENGTH,
    PATH_OWN,
    TableViews,
)

SHAPE = {"query_heads": 2, "kv_heads": 1, "dim": 64}


def attend(case: AttentionCase, tables: TableViews) -> torch.Tensor:
    out = torch.full_like(case.q, torch.nan)
    kernel.attend(case.q, case.kv, case.kv_ring, 1, case.page_table, tables, out)
    return out


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=4e-6, atol=4e-6)


@pytest.mark.parametrize(
    ("lengths", "other"), [((250, 0), 3), ((130, 64), 16), ((320, 511), 0)], ids=str
)
def test_trees_match_the_reference(lengths: tuple[int, int], other: int) -> None:
    case = make_attention_case(64, 640, **SHAPE)
    second = chain_tree(other) if other else random_tree(random.Random(3))
    tables = make_tables([make_tree(HYDRA27), second], list(lengths), [1, 0])
    expected = torch.full_like(case.q, torch.nan)
    arguments = (case.q, case.kv, case.kv_ring, 1, case.page_table, tables)
    reference.attend(*arguments, expected)
    assert_close(attend(case, tables), expected)


@pytest.mark.parametrize("dim", [128, 256])
def test_wider_heads_match_the_reference(dim: int) -> None:
    case = make_attention_case(32, 192, slots=1, query_heads=2, kv_heads=1, dim=dim)
    tables = make_tables([chain_tree(3)], [126], [0])
    expected = torch.full_like(case.q, torch.nan)
    reference.attend(case.q, case.kv, case.kv_ring, 1, case.page_table, tables, expected)
    assert_close(attend(case, tables), expected)


def test_wide_splits_begin_where_the_table_says() -> None:
    case = make_attention_case(32, 4096 + 1024 + 128, slots=1, **SHAPE)
    tables = make_tables([chain_tree(4)], [4096 + 1024 - 2], [0])
    expected = torch.full_like(case.q, torch.nan)
    reference.attend(case.q, case.kv, case.kv_ring, 1, case.page_table, tables, expected)
    assert_close(attend(case, tables), expected)


def test_split_numbers_follow_the_borders() -> None:
    ends = {
        1: 1,
        256: 1,
        257: 2,
        4096: 16,
        4097: 17,
        5120: 17,
        5121: 18,
        32768: 44,
        32769: 45,
        65536: 60,
    }
    assert {positions: kernel.num_splits(positions) for positions in ends} == ends


@pytest.mark.parametrize("rows", [16, 1, 96])
def test_runs_match_the_reference(rows: int) -> None:
    case = make_attention_case(2 * rows, 400, **SHAPE)
    slots, starts = torch.tensor([1, 0]).int(), torch.tensor([250, 0]).int()
    counts = torch.tensor([rows, rows // 2]).int()
    found, expected = (torch.full_like(case.q, torch.nan) for _ in range(2))
    arguments = (case.q, case.kv, case.page_table, slots, starts, counts)
    kernel.attend_prefill(*arguments, found)
    reference.attend_prefill(*arguments, expected)
    assert_close(found, expected)


def moved_to_pages(case: AttentionCase, length: int, nodes: list[int]) -> None:
    """Copy candidates from slot 0's ring to positions length, length + 1, ... of layer 1."""
    for index, node in enumerate(nodes):
        position = length + index
        page = int(case.page_table[0, position // PAGE])
        case.kv[page, :, :, position % PAGE] = case.kv_ring[0, 1, :, :, node]


def last_row(case: AttentionCase, tree: Tree, length: int, moved: int) -> torch.Tensor:
    """Attention of the last node of hydra27's longest path after `moved` nodes were published."""
    path = list(tree.path_to(27))
    moved_to_pages(case, length, path[:moved])
    rest = path[moved:]
    q, ring = torch.full_like(case.q, torch.nan), case.kv_ring.clone()
    q[: len(rest)], ring[0, 1, :, :, : len(rest)] = case.q[rest], case.kv_ring[0, 1][:, :, rest]
    tables = make_tables([chain_tree(len(rest))], [length + moved], [0])
    out = torch.full_like(q, torch.nan)
    kernel.attend(q, case.kv, ring, 1, case.page_table, tables, out)
    return out[len(rest) - 1]


@pytest.mark.parametrize("length", [121, 250])
def test_a_key_moved_from_ring_to_page_changes_no_bit(length: int) -> None:
    tree = make_tree(HYDRA27)
    case = make_attention_case(32, 320, slots=1, **SHAPE)
    expected = attend(case, make_tables([tree], [length], [0]))[27]
    for moved in (1, 11):
        fresh = make_attention_case(32, 320, slots=1, **SHAPE)
        assert torch.equal(last_row(fresh, tree, length, moved), expected), moved


def test_batching_and_poison_change_no_bit() -> None:
    trees, lengths = [make_tree(HYDRA27), chain_tree(5)], [121, 90]
    case = make_attention_case(64, 192, **SHAPE)
    together = attend(case, make_tables(trees, lengths, [1, 0]))
    assert torch.equal(together[37:], torch.zeros_like(together[37:]))
    poisoned = AttentionCase(*(t.clone() for t in vars(case).values()))
    poisoned.q[28:32] = poisoned.q[37:] = torch.nan
    poisoned.kv_ring[1, 1, :, :, 28:] = poisoned.kv_ring[0, 1, :, :, 5:] = torch.nan
    for slot, length in ((1, 121), (0, 90)):
        poisoned.kv[int(case.page_table[slot, length // PAGE]), :, :, length % PAGE :] = torch.nan
        poisoned.kv[int(case.page_table[slot, 2])] = torch.nan
    swapped = AttentionCase(
        torch.cat([poisoned.q[32:], poisoned.q[:32]]), *list(vars(poisoned).values())[1:]
    )
    found = attend(swapped, make_tables(trees[::-1], lengths[::-1], [0, 1]))
    assert torch.equal(found, torch.cat([together[32:], together[:32]]))


def test_a_poisoned_ancestor_does_change_the_row() -> None:
    case = make_attention_case(32, 192, slots=1, **SHAPE)
    case.kv_ring[0, 1, :, :, 4] = torch.nan
    out = attend(case, make_tables([make_tree(HYDRA27)], [100], [0]))
    assert torch.isnan(out[27]).all() and not torch.isnan(out[7]).any()


@triton.jit
def items_kernel(
    out_ptr,
    tables_ptr,
    batches,
    COUNT: tl.constexpr,
    STRIDE: tl.constexpr,
    LENGTH: tl.constexpr,
    PATHS: tl.constexpr,
    PATH_LENGTH: tl.constexpr,
    PATH_OWN: tl.constexpr,
):
    """Write each item's word and the blocks it covers."""
    for item in range(COUNT):
        words = tables_ptr, tables_ptr + LENGTH, tables_ptr
        word = word_of(
            item, batches, words[0], words[1], words[2], True, STRIDE, PATH_LENGTH, PATHS, 6, 4
        )
        tl.store(out_ptr + item * 3, word)
        if word >= 0:
            found = blocks_of(
                word, words[0], words[1], words[2], True, STRIDE, PATH_LENGTH, PATH_OWN
            )
            tl.store(out_ptr + item * 3 + 1, found[7])
            tl.store(out_ptr + item * 3 + 2, found[8])


def expected_items(tree: Tree, length: int, batch: int) -> set[tuple[int, ...]]:
    """(batch, last split or not, rank, pair, head, first block, blocks) of a sequence's work."""
    items = set()
    tables = make_tables([tree], [length], [0])
    shared = kernel.num_splits(length + 1) - 1
    begins = [position for position in range(length + 17) if starts_split(position)]
    for head in range(4):
        for split in range(shared):
            blocks = (begins[split + 1] - begins[split]) // PAGE
            for pair in range(-(-tree.num_nodes * 6 // 128)):
                items.add((batch, 0, split, pair, head, begins[split] // PAGE, blocks))
        for path in range(int(tables.header[0, NUM_PATHS])):
            end = length + int(tables.path_length[0, path])
            for split in (shared, shared + 1):
                if kernel.num_splits(length + int(tables.path_length[0, 0])) <= split:
                    continue
                first = begins[split] // PAGE
                last = begins[split + 1] if split + 1 < len(begins) else end
                blocks = max(-(-min(end, last) // PAGE) - first, 0)
                items.add((batch, 1, path * 2 + split - shared, 0, head, first, blocks))
    return items


def starts_split(position: int) -> bool:
    return kernel.num_splits(position + 1) != kernel.num_splits(position)


def test_items_cover_every_split_and_path_once() -> None:
    trees, lengths = [make_tree(HYDRA27), chain_tree(1), chain_tree(16)], [250, 0, 5119]
    tables = make_tables(trees, lengths, [0, 1, 2])
    expected = set()
    for batch, (tree, length) in enumerate(zip(trees, lengths, strict=True)):
        expected |= expected_items(tree, length, batch)
    count = len(expected) + 5
    out = torch.zeros((count, 3), dtype=torch.int32)
    items_kernel[(1,)](
        out, tables.block, 3, COUNT=count, STRIDE=TABLE_WORDS, LENGTH=COMMITTED_LENGTH,
        PATHS=NUM_PATHS, PATH_LENGTH=PATH_LENGTH, PATH_OWN=PATH_OWN,
    )  # fmt: skip
    found = [
        (w % 16, w // 8192 % 2, w // 16384, w // 1024 % 8, w // 16 % 64, first, blocks)
        for w, first, blocks in out.tolist()
        if w >= 0
    ]
    assert len(found) == len(expected) and set(found) == expected
    assert (out[len(expected) :, 0] == -1).all()
