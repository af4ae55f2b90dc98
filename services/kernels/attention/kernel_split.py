"""Attention by splits at absolute positions: Triton source of the tree and row-run kernels.

A program folds key blocks of one split, in ascending order, into a tile of query rows of one kv
head.
Older splits hold committed keys only, so their rows are any live rows. The split of the committed
length and the next one run once a root-to-leaf path, for the rows that the path owns. Both run
the same loop; only the row table and the source of the last blocks differ: blocks that reach
the committed length are staged per path beside the pages, with masked keys 0.
"""

import triton
import triton.language as tl

from services.kernels.attention.kernel_stage import PAGE, PATH, split_begin, split_of
from services.kernels.attention.kernel_step import LOWEST, new_base_of, weights_of


@triton.jit
def fold(q, k, v, seen, acc, base, total, scale):
    """Fold one block of keys into the running softmax of a tile of rows, in base 2."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    scores = tl.where(seen, scores, float("-inf"))
    new_base = new_base_of(base, tl.max(scores, 1), scale)
    decay = tl.exp2(base - new_base)
    weights = weights_of(scores, new_base, scale)
    total = tl.fma(total, decay, tl.sum(weights, 1))
    acc = tl.dot(weights.to(v.dtype), v, acc * decay[:, None], input_precision="ieee")
    return acc, new_base, total


@triton.jit
def fold_blocks(
    q,
    row_position,
    kv_ptr,
    staged_ptr,
    page_ptr,
    kv_head,
    begin,
    first_staged,
    end,
    scale,
    HKV: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Fold positions begin..end: pages below first_staged, staged pages from there on.

    The page of a block is loaded one block early, so that its keys can be prefetched.
    """
    PER: tl.constexpr = PAGE // BLOCK
    acc = tl.zeros([ROWS, D], tl.float32)
    base = tl.full([ROWS], LOWEST, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    offset = tl.arange(0, BLOCK)[:, None] * D + tl.arange(0, D)[None, :]
    last = (end - 1) // PAGE
    page = tl.load(page_ptr + begin // PAGE).to(tl.int64)
    for index in tl.range(begin // BLOCK, (end + BLOCK - 1) // BLOCK):
        place = index // PER
        source = kv_ptr + (page * (2 * HKV) + kv_head) * (PAGE * D)
        staged = staged_ptr + ((place - first_staged) * (2 * HKV) + kv_head) * (PAGE * D)
        page = tl.load(page_ptr + tl.minimum((index + 1) // PER, last)).to(tl.int64)
        source = tl.where(place < first_staged, source, staged) + (index - place * PER) * (
            BLOCK * D
        )
        k = tl.load(source + offset)
        v = tl.load(source + HKV * PAGE * D + offset)
        seen = tl.arange(0, BLOCK)[None, :] <= (row_position - index * BLOCK)[:, None]
        acc, base, total = fold(q, k, v, seen, acc, base, total, scale)
    return acc, base, total


@triton.jit(do_not_specialize=["rows"])
def split_kernel(
    q_ptr,
    kv_ptr,
    staged_ptr,
    page_ptr,
    live_ptr,
    length_ptr,
    slot_ptr,
    tables_ptr,
    acc_ptr,
    top_ptr,
    sum_ptr,
    scale,
    rows,
    TREE: tl.constexpr,
    STRIDE: tl.constexpr,
    DEPTHS: tl.constexpr,
    PATHS: tl.constexpr,
    PATH_LENGTH: tl.constexpr,
    PATH_OWN: tl.constexpr,
    NUM_PATHS: tl.constexpr,
    MAX_PATHS: tl.constexpr,
    TAIL_TILES: tl.constexpr,
    TILES: tl.constexpr,
    SPLITS: tl.constexpr,
    MAX_PAGES: tl.constexpr,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute one (split, kv head, row tile) of one sequence; programs past its end leave."""
    GROUP: tl.constexpr = HQ // HKV
    TAIL: tl.constexpr = MAX_PATHS * 2 * HKV * TAIL_TILES
    work = tl.program_id(0)
    batch = tl.program_id(1)
    num_live = tl.load(live_ptr + batch * STRIDE)
    length = tl.load(length_ptr + batch * STRIDE)
    slot = tl.load(slot_ptr + batch * STRIDE)
    tables = tables_ptr + batch * STRIDE
    last_shared = split_of(length)
    is_tail = work < TAIL

    cell = tl.where(is_tail, work, work - TAIL)
    tiles = tl.where(is_tail, TAIL_TILES, TILES)
    tile = cell % tiles
    kv_head = (cell // tiles) % HKV
    rank = cell // (tiles * HKV)
    path = tl.where(is_tail, rank // 2, 0)
    split = tl.where(is_tail, last_shared + rank % 2, SPLITS - 1 - rank)

    paths = 1
    own = 0
    run = num_live
    if TREE:
        paths = tl.load(tables + NUM_PATHS)
        own = tl.load(tables + PATH_OWN + path)
        run = tl.load(tables + PATH_LENGTH + path)
    row_end = tl.where(is_tail, run - own, num_live) * GROUP
    if tile * ROWS >= row_end:
        return
    if is_tail:
        if path >= paths or split > split_of(length + run - 1):
            return
    elif split >= last_shared:
        return

    row = tile * ROWS + tl.arange(0, ROWS)
    live = row < row_end
    index = row // GROUP
    node = index
    depth = index
    if TREE:
        if is_tail:
            node = tl.load(tables + PATHS + path * PATH + own + index)
        node = tl.minimum(tl.maximum(node, 0), 31)
        depth = tl.load(tables + DEPTHS + node)
    place = ((batch * rows + node) * HQ + kv_head * GROUP + row % GROUP)[:, None] * D
    q = tl.load(q_ptr + place + tl.arange(0, D)[None, :], mask=live[:, None], other=0.0)

    end = split_begin(split + 1)
    end = tl.where(is_tail, tl.minimum(end, length + run), end)
    staged = ((batch * MAX_PATHS + path) * 2).to(tl.int64) * (2 * HKV * PAGE * D)
    acc, top, total = fold_blocks(
        q, length + depth, kv_ptr, staged_ptr + staged, page_ptr + slot * MAX_PAGES, kv_head,
        split_begin(split), length // PAGE, end, scale, HKV, D, ROWS, BLOCK,
    )  # fmt: skip
    cells = (batch * (SPLITS * TILES) + split * TILES + tile) * HKV + kv_head
    if is_tail:
        tail = ((batch * MAX_PATHS + path) * 2 + rank % 2) * TAIL_TILES + tile
        cells = tl.num_programs(1) * (SPLITS * TILES * HKV) + tail * HKV + kv_head
    line = tl.arange(0, ROWS)
    tl.store(top_ptr + cells * ROWS + line, top, mask=live)
    tl.store(sum_ptr + cells * ROWS + line, total, mask=live)
    target = acc_ptr + cells.to(tl.int64) * (ROWS * D)
    tl.store(target + line[:, None] * D + tl.arange(0, D)[None, :], acc, mask=live[:, None])
