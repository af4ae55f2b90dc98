"""Attention: Triton source of the merge of splits and of the prefill kernel."""

import triton
import triton.language as tl

from services.kernels.attention.kernel_split import fold
from services.kernels.attention.kernel_stage import PAGE, split_of
from services.kernels.attention.kernel_step import LOWEST


@triton.jit
def merge_kernel(
    acc_ptr,
    top_ptr,
    sum_ptr,
    live_ptr,
    length_ptr,
    tables_ptr,
    out_ptr,
    taken_ptr,
    TREE: tl.constexpr,
    STRIDE: tl.constexpr,
    DEPTHS: tl.constexpr,
    PATH_OF: tl.constexpr,
    PATH_OWN: tl.constexpr,
    MAX_PATHS: tl.constexpr,
    TAIL_TILES: tl.constexpr,
    TILES: tl.constexpr,
    SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDTH: tl.constexpr,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Merge the splits of WIDTH columns of one row and head, in ascending order; padding is 0.

    The first program also clears the count of items that the Hopper kernel takes.
    """
    PARTS: tl.constexpr = D // WIDTH
    GROUP: tl.constexpr = HQ // HKV
    node = tl.program_id(0)
    head = tl.program_id(1) // PARTS
    batch = tl.program_id(2)
    kv_head = head // GROUP
    column = tl.program_id(1) % PARTS * WIDTH + tl.arange(0, WIDTH)
    if node + tl.program_id(1) + batch == 0:
        tl.store(taken_ptr, 0)
    target = out_ptr + ((batch * tl.num_programs(0) + node) * HQ + head) * D + column
    if node >= tl.load(live_ptr + batch * STRIDE):
        tl.store(target, tl.zeros([WIDTH], tl.float32).to(out_ptr.dtype.element_ty))
        return
    depth = node
    path = 0
    own = 0
    if TREE:
        tables = tables_ptr + batch * STRIDE
        depth = tl.load(tables + DEPTHS + node)
        path = tl.load(tables + PATH_OF + node)
        own = tl.load(tables + PATH_OWN + path)
    length = tl.load(length_ptr + batch * STRIDE)
    last_shared = split_of(length)
    splits = split_of(length + depth) + 1
    shared_row = node * GROUP + head % GROUP
    tail_row = (depth - own) * GROUP + head % GROUP
    shared_cell = (batch * (SPLITS * TILES) + shared_row // ROWS) * HKV + kv_head
    tail_cell = (batch * MAX_PATHS + path) * (2 * TAIL_TILES) + tail_row // ROWS
    tail_cell = tl.num_programs(2) * (SPLITS * TILES * HKV) + tail_cell * HKV + kv_head

    offset = tl.arange(0, CHUNK)
    top = tl.full([CHUNK], float("-inf"), tl.float32)
    for first in tl.range(0, splits, CHUNK):
        split = first + offset
        shared = (shared_cell + split * (TILES * HKV)) * ROWS + shared_row % ROWS
        tail = (tail_cell + (split - last_shared) * (TAIL_TILES * HKV)) * ROWS + tail_row % ROWS
        line = tl.where(split < last_shared, shared, tail)
        part = tl.load(top_ptr + line, mask=split < splits, other=float("-inf"))
        top = tl.maximum(top, part)
    base = tl.max(top, 0)
    acc = tl.zeros([WIDTH], tl.float32)
    total = tl.zeros([CHUNK], tl.float32)
    for first in tl.range(0, splits, CHUNK):
        split = first + offset
        shared = (shared_cell + split * (TILES * HKV)) * ROWS + shared_row % ROWS
        tail = (tail_cell + (split - last_shared) * (TAIL_TILES * HKV)) * ROWS + tail_row % ROWS
        line = tl.where(split < last_shared, shared, tail)
        used = split < splits
        part = tl.load(top_ptr + line, mask=used, other=float("-inf"))
        weight = tl.exp2(part - base)
        total = tl.fma(weight, tl.load(sum_ptr + line, mask=used, other=0.0), total)
        source = acc_ptr + line.to(tl.int64)[:, None] * D + column[None, :]
        values = tl.load(source, mask=used[:, None], other=0.0)
        acc += tl.sum(weight[:, None] * values, 0)
    tl.store(target, (acc / tl.sum(total, 0)).to(out_ptr.dtype.element_ty))


@triton.jit(do_not_specialize=["rows"])
def prefill_kernel(
    q_ptr,
    kv_ptr,
    page_ptr,
    slot_ptr,
    start_ptr,
    count_ptr,
    out_ptr,
    scale,
    rows,
    MAX_PAGES: tl.constexpr,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Attend from a tile of a prompt chunk's (row, head) pairs to all keys up to theirs."""
    GROUP: tl.constexpr = HQ // HKV
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    batch = tl.program_id(2)
    start = tl.load(start_ptr + batch)
    count = tl.load(count_ptr + batch)
    pages = page_ptr + tl.load(slot_ptr + batch) * MAX_PAGES
    row = tile * ROWS + tl.arange(0, ROWS)
    index = row // GROUP
    live = index < count
    column = tl.arange(0, D)[None, :]
    place = ((batch * rows + index) * HQ + kv_head * GROUP + row % GROUP)[:, None] * D + column
    q = tl.load(q_ptr + place, mask=live[:, None], other=0.0)
    last = tl.minimum(count, (tile * ROWS + ROWS - 1) // GROUP + 1)
    block_end = tl.where(tile * ROWS < count * GROUP, (start + last + PAGE - 1) // PAGE, 0)
    acc = tl.zeros([ROWS, D], tl.float32)
    base = tl.full([ROWS], LOWEST, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    offset = tl.arange(0, PAGE)[:, None] * D + column
    page = tl.load(pages).to(tl.int64)
    for block in tl.range(0, block_end):
        source = kv_ptr + (page * (2 * HKV) + kv_head) * (PAGE * D)
        page = tl.load(pages + tl.minimum(block + 1, block_end - 1)).to(tl.int64)
        position = block * PAGE + tl.arange(0, PAGE)
        held = (position < start + count)[:, None]
        k = tl.load(source + offset, mask=held, other=0.0)
        v = tl.load(source + HKV * PAGE * D + offset, mask=held, other=0.0)
        seen = position[None, :] <= (start + index)[:, None]
        acc, base, total = fold(q, k, v, seen, acc, base, total, scale)
    core = acc / tl.where(live, total, 1.0)[:, None]
    core = tl.where(live[:, None], core, 0.0)
    tl.store(out_ptr + place, core.to(out_ptr.dtype.element_ty), mask=(index < rows)[:, None])
