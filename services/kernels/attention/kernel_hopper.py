"""Attention by splits on Hopper: Gluon source of the split kernel for head dim 256.

A program keeps one multiprocessor busy: it takes items until none is left. One warpgroup brings
keys and values; two others own a tile of 64 rows each and share the blocks. The softmax of a
block runs beside the sum of the block before it and beside the other tile's products. Cells and
masks mean what they mean in kernel_split.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from services.kernels.attention.kernel_copy import PAGE, PATH, TILE, WORD, copy_items
from services.kernels.attention.kernel_items import blocks_of
from services.kernels.attention.kernel_step import LOWEST, new_base_of, weights_of
from services.kernels.kernel_names import barrier

ROWS = gl.constexpr(64)
LINE = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))
SCORES = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
SUMS = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 256, 16]))


@gluon.jit
def softmax(scores, block, masked, limits, base, total, scale):
    """Return a block's weights, the decay of earlier sums, and the new base and total."""
    if masked:
        key = gl.arange(0, PAGE, gl.SliceLayout(0, SCORES))
        limit = limits.load(gl.SliceLayout(1, SCORES)) - block * PAGE
        # key <= limit, with constants of the lane only
        seen = (key & ~6)[None, :] <= limit[:, None] - (key & 6)[None, :]
        scores = gl.where(seen, scores, float("-inf"))
    new_base = new_base_of(base, gl.max(scores, 1), scale)
    decay = gl.exp2(base - new_base)
    weights = weights_of(scores, new_base, scale)
    total = gl.fma(total, decay, gl.sum(weights, 1))
    part = gl.convert_layout(weights.to(gl.bfloat16), gl.DotOperandLayout(0, SUMS, 2))
    return part, gl.convert_layout(decay, gl.SliceLayout(1, SUMS)), new_base, total


@gluon.jit
def fold_tile(
    q,
    limits,
    start,
    stop,
    masked_from,
    k_bufs,
    v_bufs,
    k_ready,
    k_free,
    v_ready,
    v_free,
    scale,
    D: gl.constexpr,
    K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr,
):
    """Fold this program's blocks start..stop into a tile.

    The scores of a block are ordered before the sum of the block before it.
    """
    acc = gl.full([ROWS, D], 0.0, gl.float32, SUMS)
    base = gl.full([ROWS], LOWEST, gl.float32, gl.SliceLayout(1, SCORES))
    total = gl.full([ROWS], 0.0, gl.float32, gl.SliceLayout(1, SCORES))
    zero = gl.full([ROWS, PAGE], 0.0, gl.float32, SCORES)
    at = start % K_STAGES
    mbarrier.wait(k_ready.index(at), (start // K_STAGES) & 1)
    scores = warpgroup_mma(q, k_bufs.index(at).permute((1, 0)), zero, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=[scores])
    mbarrier.arrive(k_free.index(at))
    part, decay, base, total = softmax(
        scores, start, start >= masked_from, limits, base, total, scale
    )
    for i in range(start + 1, stop):
        k_at = i % K_STAGES
        v_at = (i - 1) % V_STAGES
        mbarrier.wait(k_ready.index(k_at), (i // K_STAGES) & 1)
        keys = k_bufs.index(k_at).permute((1, 0))
        scores = warpgroup_mma(q, keys, zero, use_acc=False, is_async=True)
        mbarrier.wait(v_ready.index(v_at), ((i - 1) // V_STAGES) & 1)
        acc = warpgroup_mma(part, v_bufs.index(v_at), acc, is_async=True)
        scores = warpgroup_mma_wait(1, deps=[scores])
        mbarrier.arrive(k_free.index(k_at))
        following, decay, base, total = softmax(
            scores, i, i >= masked_from, limits, base, total, scale
        )
        acc, part = warpgroup_mma_wait(0, deps=[acc, part])
        mbarrier.arrive(v_free.index(v_at))
        acc = acc * decay[:, None]
        part = following
    at = (stop - 1) % V_STAGES
    mbarrier.wait(v_ready.index(at), ((stop - 1) // V_STAGES) & 1)
    acc = warpgroup_mma(part, v_bufs.index(at), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(v_free.index(at))
    return acc, base, total


@gluon.jit
def run_items(
    WHO: gl.constexpr,
    q_ptr,
    live_ptr,
    length_ptr,
    tables_ptr,
    acc_ptr,
    top_ptr,
    sum_ptr,
    q_bufs,
    limits,
    k_bufs,
    v_bufs,
    k_ready,
    k_free,
    v_ready,
    v_free,
    turns,
    turn_ready,
    turn_free,
    scale,
    rows,
    batches,
    TREE: gl.constexpr,
    STRIDE: gl.constexpr,
    DEPTHS: gl.constexpr,
    PATHS: gl.constexpr,
    PATH_LENGTH: gl.constexpr,
    PATH_OWN: gl.constexpr,
    MAX_PATHS: gl.constexpr,
    TAIL_TILES: gl.constexpr,
    TILES: gl.constexpr,
    SPLITS: gl.constexpr,
    HQ: gl.constexpr,
    HKV: gl.constexpr,
    D: gl.constexpr,
    K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr,
):
    """Run one tile of each item and store its sums; a tile without rows only lets buffers go."""
    GROUP: gl.constexpr = HQ // HKV
    count = 0
    mbarrier.wait(turn_ready, 0)
    told = gl.max(turns.load(WORD), 0)
    mbarrier.arrive(turn_free)
    while told >= 0:
        word = told // 2
        batch, rank, is_tail, path, own, run, length, first, blocks = blocks_of(
            word, live_ptr, length_ptr, tables_ptr, TREE, STRIDE, PATH_LENGTH, PATH_OWN
        )
        kv_head = (word // 16) % 64
        tile = (word // 1024) % 8 * 2 + WHO
        row_end = (run - own) * GROUP - tile * ROWS
        if (row_end > 0) & (blocks > 0):
            line = gl.arange(0, ROWS, gl.SliceLayout(1, TILE))
            row = tile * ROWS + line
            column = gl.arange(0, D, gl.SliceLayout(0, TILE))
            index = row // GROUP
            node = index
            depth = index
            if TREE:
                tables = tables_ptr + batch * STRIDE
                if is_tail:
                    node = gl.load(tables + PATHS + path * PATH + gl.minimum(own + index, PATH - 1))
                node = gl.minimum(gl.maximum(node, 0), 31)
                depth = gl.load(tables + DEPTHS + node)
            place = ((batch * rows + node) * HQ + kv_head * GROUP + row % GROUP) * D
            live = (line < row_end)[:, None]
            q = gl.load(q_ptr + (place[:, None] + column[None, :]), mask=live, other=0.0)
            q_bufs.index(WHO).store(q)
            limits.index(WHO).store(length + depth + (count - first) * PAGE)
            fence_async_shared()
            barrier()
            cells = (batch * (SPLITS * TILES) + rank * TILES + tile) * HKV + kv_head
            if is_tail:
                cells = ((batch * MAX_PATHS + path) * 2 + rank % 2) * TAIL_TILES + tile
                cells = batches * (SPLITS * TILES * HKV) + cells * HKV + kv_head
            acc, base, total = fold_tile(
                q_bufs.index(WHO), limits.index(WHO), count, count + blocks,
                count + length // PAGE - first, k_bufs, v_bufs, k_ready, k_free, v_ready, v_free,
                scale, D, K_STAGES, V_STAGES,
            )  # fmt: skip
            line = gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
            used = line < row_end
            gl.store(top_ptr + cells * ROWS + line, base, mask=used)
            gl.store(sum_ptr + cells * ROWS + line, total, mask=used)
            line = gl.arange(0, ROWS, gl.SliceLayout(1, SUMS))
            column = gl.arange(0, D, gl.SliceLayout(0, SUMS))
            target = acc_ptr + (cells * (ROWS * D) + line[:, None] * D + column[None, :])
            gl.store(target, acc, mask=(line < row_end)[:, None])
        else:
            for i in range(count, count + blocks):
                mbarrier.wait(k_ready.index(i % K_STAGES), (i // K_STAGES) & 1)
                mbarrier.arrive(k_free.index(i % K_STAGES))
                mbarrier.wait(v_ready.index(i % V_STAGES), (i // V_STAGES) & 1)
                mbarrier.arrive(v_free.index(i % V_STAGES))
        count += blocks
        mbarrier.wait(turn_ready, told & 1)
        told = gl.max(turns.load(WORD), 0)
        mbarrier.arrive(turn_free)


@gluon.jit(do_not_specialize=["rows", "batches"])
def hopper_kernel(
    q_ptr,
    kv,
    kv_ptr,
    ring_ptr,
    page_ptr,
    live_ptr,
    length_ptr,
    slot_ptr,
    tables_ptr,
    acc_ptr,
    top_ptr,
    sum_ptr,
    taken_ptr,
    scale,
    rows,
    batches,
    TREE: gl.constexpr,
    STRIDE: gl.constexpr,
    LIVE: gl.constexpr,
    LENGTH: gl.constexpr,
    SLOT: gl.constexpr,
    DEPTHS: gl.constexpr,
    PATHS: gl.constexpr,
    PATH_LENGTH: gl.constexpr,
    PATH_OWN: gl.constexpr,
    NUM_PATHS: gl.constexpr,
    MAX_PATHS: gl.constexpr,
    TAIL_TILES: gl.constexpr,
    TILES: gl.constexpr,
    SPLITS: gl.constexpr,
    MAX_PAGES: gl.constexpr,
    SLOT_STRIDE: gl.constexpr,
    HQ: gl.constexpr,
    HKV: gl.constexpr,
    D: gl.constexpr,
    K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    """Compute every item; `taken` counts those taken beyond one a program."""
    if TREE:
        live_ptr = tables_ptr + LIVE
        length_ptr = tables_ptr + LENGTH
        slot_ptr = tables_ptr + SLOT
    SHARED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    q_bufs = gl.allocate_shared_memory(gl.bfloat16, [2, ROWS, D], SHARED)
    k_bufs = gl.allocate_shared_memory(gl.bfloat16, [K_STAGES, PAGE, D], SHARED)
    v_bufs = gl.allocate_shared_memory(gl.bfloat16, [V_STAGES, PAGE, D], SHARED)
    limits = gl.allocate_shared_memory(gl.int32, [2, ROWS], LINE)
    turns = gl.allocate_shared_memory(gl.int32, [1], LINE)
    k_ready = gl.allocate_shared_memory(gl.int64, [K_STAGES, 1], BARRIER)
    k_free = gl.allocate_shared_memory(gl.int64, [K_STAGES, 1], BARRIER)
    v_ready = gl.allocate_shared_memory(gl.int64, [V_STAGES, 1], BARRIER)
    v_free = gl.allocate_shared_memory(gl.int64, [V_STAGES, 1], BARRIER)
    turn_ready = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    turn_free = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    for i in gl.static_range(K_STAGES):
        mbarrier.init(k_ready.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)
    for i in gl.static_range(V_STAGES):
        mbarrier.init(v_ready.index(i), count=1)
        mbarrier.init(v_free.index(i), count=2)
    mbarrier.init(turn_ready, count=1)
    mbarrier.init(turn_free, count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (copy_items, (
                kv, kv_ptr, ring_ptr, page_ptr, live_ptr, length_ptr, slot_ptr, tables_ptr,
                taken_ptr, k_bufs, v_bufs, k_ready, k_free, v_ready, v_free, turns, turn_ready,
                turn_free, batches, TREE, STRIDE, PATHS, PATH_LENGTH, PATH_OWN, NUM_PATHS,
                MAX_PAGES, SLOT_STRIDE, HQ // HKV, HKV, D, K_STAGES, V_STAGES,
            )),
            (run_items, (
                0, q_ptr, live_ptr, length_ptr, tables_ptr, acc_ptr, top_ptr, sum_ptr, q_bufs,
                limits, k_bufs, v_bufs, k_ready, k_free, v_ready, v_free, turns, turn_ready,
                turn_free, scale, rows, batches, TREE, STRIDE, DEPTHS, PATHS, PATH_LENGTH,
                PATH_OWN, MAX_PATHS, TAIL_TILES, TILES, SPLITS, HQ, HKV, D, K_STAGES, V_STAGES,
            )),
            (run_items, (
                1, q_ptr, live_ptr, length_ptr, tables_ptr, acc_ptr, top_ptr, sum_ptr, q_bufs,
                limits, k_bufs, v_bufs, k_ready, k_free, v_ready, v_free, turns, turn_ready,
                turn_free, scale, rows, batches, TREE, STRIDE, DEPTHS, PATHS, PATH_LENGTH,
                PATH_OWN, MAX_PATHS, TAIL_TILES, TILES, SPLITS, HQ, HKV, D, K_STAGES, V_STAGES,
            )),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )  # fmt: skip
