"""Attention by splits: borders, and the kernel that stages the last blocks."""

import triton
import triton.language as tl

PAGE = tl.constexpr(64)
PATH = tl.constexpr(16)
NARROW_END = tl.constexpr(4096)
MIDDLE_END = tl.constexpr(32768)


@triton.jit
def split_of(position):
    """Return the split that holds an absolute position: 256, then 1,024, then 2,048 wide."""
    narrow = tl.minimum(position, NARROW_END) // 256
    middle = tl.maximum(tl.minimum(position, MIDDLE_END) - NARROW_END, 0) // 1024
    return narrow + middle + tl.maximum(position - MIDDLE_END, 0) // 2048


@triton.jit
def split_begin(split):
    """Return the first position of a split."""
    middle = tl.minimum(tl.maximum(split - 16, 0), 28)
    return tl.minimum(split, 16) * 256 + middle * 1024 + tl.maximum(split - 44, 0) * 2048


@triton.jit
def stage_kernel(
    kv_ptr,
    ring_ptr,
    page_ptr,
    live_ptr,
    length_ptr,
    slot_ptr,
    tables_ptr,
    staged_ptr,
    TREE: tl.constexpr,
    STRIDE: tl.constexpr,
    PATHS: tl.constexpr,
    PATH_LENGTH: tl.constexpr,
    NUM_PATHS: tl.constexpr,
    MAX_PATHS: tl.constexpr,
    MAX_PAGES: tl.constexpr,
    SLOT_STRIDE: tl.constexpr,
    HKV: tl.constexpr,
    D: tl.constexpr,
):
    """Stage the two blocks from the committed length on as one path sees them; the rest is 0."""
    path = tl.program_id(0) // 2
    which = tl.program_id(0) % 2
    plane = tl.program_id(1)
    batch = tl.program_id(2)
    length = tl.load(length_ptr + batch * STRIDE)
    slot = tl.load(slot_ptr + batch * STRIDE).to(tl.int64)
    run = tl.load(live_ptr + batch * STRIDE)
    tables = tables_ptr + batch * STRIDE
    if TREE:
        if path >= tl.load(tables + NUM_PATHS):
            return
        run = tl.load(tables + PATH_LENGTH + path)
    block = length // PAGE + which
    position = block * PAGE + tl.arange(0, PAGE)
    paged_end = length
    if not TREE:
        paged_end = length + run
    if block * PAGE >= length + run:
        return
    column = tl.arange(0, D)[None, :]
    row = tl.arange(0, PAGE)[:, None]
    in_page = position < paged_end
    page = tl.load(page_ptr + slot * MAX_PAGES + block, mask=block * PAGE < paged_end, other=0)
    source = kv_ptr + (page.to(tl.int64) * (2 * HKV) + plane) * (PAGE * D)
    tile = tl.load(source + row * D + column, mask=in_page[:, None], other=0.0)
    if TREE:
        index = position - length
        in_ring = (index >= 0) & (index < run)
        node = tl.load(tables + PATHS + path * PATH + index, mask=in_ring, other=0)
        held = ring_ptr + slot * SLOT_STRIDE + (plane * 32 + node[:, None]) * D + column
        tile = tl.where(in_page[:, None], tile, tl.load(held, mask=in_ring[:, None], other=0.0))
    place = ((batch * MAX_PATHS + path) * 2 + which).to(tl.int64) * (2 * HKV) + plane
    tl.store(staged_ptr + place * (PAGE * D) + row * D + column, tile)
