"""A matrix product of fixed tiles: 32 rows a group, any number of groups, the same bits a row."""

import triton
import triton.language as tl

GROUP = tl.constexpr(32)


@triton.jit(do_not_specialize=["rows"])
def fixed_tile_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    rows,
    N: tl.constexpr,
    K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Multiply BLOCK_N weight rows by every group of 32 rows over one slice of K.

    With slices, out is fp32 [SPLIT_K, rows, N] and sum_slices_kernel finishes.
    """
    SLICE: tl.constexpr = (K // BLOCK_K + SPLIT_K - 1) // SPLIT_K
    feature = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    inner = tl.arange(0, BLOCK_K)
    inside = (feature < N)[:, None]
    weight = weight_ptr + feature.to(tl.int64)[:, None] * K + inner[None, :]
    row = tl.arange(0, GROUP)
    source = x_ptr + row[None, :] * K + inner[:, None]
    acc0 = tl.zeros([BLOCK_N, GROUP], tl.float32)
    acc1 = tl.zeros([BLOCK_N, GROUP], tl.float32)
    acc2 = tl.zeros([BLOCK_N, GROUP], tl.float32)
    acc3 = tl.zeros([BLOCK_N, GROUP], tl.float32)
    for step in tl.range(part * SLICE, tl.minimum((part + 1) * SLICE, K // BLOCK_K)):
        w = tl.load(weight + step * BLOCK_K, mask=inside, other=0.0)
        x = source + step * BLOCK_K
        acc0 = product(w, x, rows, acc0)
        if GROUPS > 1:
            acc1 = product(w, x + GROUP * K, rows - GROUP, acc1)
        if GROUPS > 2:
            acc2 = product(w, x + 2 * GROUP * K, rows - 2 * GROUP, acc2)
        if GROUPS > 3:
            acc3 = product(w, x + 3 * GROUP * K, rows - 3 * GROUP, acc3)
    target = out_ptr + part.to(tl.int64) * rows * N
    store_group(target, acc0, feature, 0, rows, N)
    if GROUPS > 1:
        store_group(target, acc1, feature, GROUP, rows, N)
    if GROUPS > 2:
        store_group(target, acc2, feature, 2 * GROUP, rows, N)
    if GROUPS > 3:
        store_group(target, acc3, feature, 3 * GROUP, rows, N)


@triton.jit
def product(w, x_ptr, rows, acc):
    """Add w [BLOCK_N, BLOCK_K] times one group's x [BLOCK_K, 32]; rows past the end are 0."""
    x = tl.load(x_ptr, mask=(tl.arange(0, GROUP) < rows)[None, :], other=0.0)
    return tl.dot(w, x, acc, input_precision="ieee")


@triton.jit
def store_group(out_ptr, acc, feature, first, rows, N: tl.constexpr):
    """Store one group [BLOCK_N, 32] transposed."""
    row = first + tl.arange(0, GROUP)
    target = out_ptr + row[:, None] * N + feature[None, :]
    inside = (row < rows)[:, None] & (feature < N)[None, :]
    tl.store(target, tl.trans(acc).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["size"])
def sum_slices_kernel(parts_ptr, out_ptr, size, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    """Add the slices of K in ascending order and cast once."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    total = tl.load(parts_ptr + place, mask=inside, other=0.0)
    for part in tl.static_range(1, SPLIT_K):
        source = parts_ptr + tl.cast(size, tl.int64) * part + place
        total += tl.load(source, mask=inside, other=0.0)
    tl.store(out_ptr + place, total.to(out_ptr.dtype.element_ty), mask=inside)
