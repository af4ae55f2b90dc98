"""The work of the Hopper kernel as items: which splits, paths and row tiles there are.

An item is one kv head's share of one split: two tiles of rows, or one path's rows in the split of
the committed length or the next. All programs count through the same items, so none is written
down; which program takes which changes no bit.
"""

import triton
import triton.language as tl

from services.kernels.attention.kernel_stage import PAGE, split_begin, split_of

ITEM_ROWS = tl.constexpr(128)


@triton.jit
def word_of(
    item,
    batches,
    live_ptr,
    length_ptr,
    tables_ptr,
    TREE: tl.constexpr,
    STRIDE: tl.constexpr,
    PATH_LENGTH: tl.constexpr,
    NUM_PATHS: tl.constexpr,
    GROUP: tl.constexpr,
    HKV: tl.constexpr,
):
    """Return the item-th piece of work as one word, or -1 past the last.

    A sequence's shared splits come first, the latest first, then its paths in the split of the
    committed length and in the next one. A piece has two tiles of rows of one kv head.
    """
    word = -1
    for batch in range(batches):
        live = tl.load(live_ptr + batch * STRIDE)
        length = tl.load(length_ptr + batch * STRIDE)
        paths = 1
        longest = live
        if TREE:
            paths = tl.load(tables_ptr + batch * STRIDE + NUM_PATHS)
            longest = tl.load(tables_ptr + batch * STRIDE + PATH_LENGTH)
        splits = split_of(length)
        pairs = (live * GROUP + ITEM_ROWS - 1) // ITEM_ROWS
        shared = splits * pairs
        tails = tl.where(live > 0, paths, 0)
        both = tl.where(split_of(length + longest - 1) > splits, 2 * tails, tails)
        rank = item // HKV
        late = rank >= shared
        pair = tl.where(late, 0, rank % tl.maximum(pairs, 1))
        tail = rank - shared
        tail = tl.where(tail < tails, tail * 2, (tail - tails) * 2 + 1)
        rank = tl.where(late, tail, splits - 1 - rank // tl.maximum(pairs, 1))
        found = (((rank * 2 + late.to(tl.int32)) * 8 + pair) * 64 + item % HKV) * 16 + batch
        word = tl.where((item >= 0) & (item < (shared + both) * HKV), found, word)
        item -= (shared + both) * HKV
    return word


@triton.jit
def blocks_of(
    word,
    live_ptr,
    length_ptr,
    tables_ptr,
    TREE: tl.constexpr,
    STRIDE: tl.constexpr,
    PATH_LENGTH: tl.constexpr,
    PATH_OWN: tl.constexpr,
):
    """Return what a word means: sequence, rank, path, its owned and all nodes, length, blocks."""
    batch = word % 16
    is_tail = (word // 8192) % 2 == 1
    rank = word // 16384
    tables = tables_ptr + batch * STRIDE
    length = tl.load(length_ptr + batch * STRIDE)
    run = tl.load(live_ptr + batch * STRIDE)
    own = 0
    path = 0
    split = rank
    end = split_begin(rank + 1)
    if is_tail:
        path = rank // 2
        split = split_of(length) + rank % 2
        if TREE:
            own = tl.load(tables + PATH_OWN + path)
            run = tl.load(tables + PATH_LENGTH + path)
        end = tl.minimum(split_begin(split + 1), length + run)
    first = split_begin(split) // PAGE
    blocks = tl.maximum((end + PAGE - 1) // PAGE - first, 0)
    return batch, rank, is_tail, path, own, run, length, first, blocks
