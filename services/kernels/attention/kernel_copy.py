"""Attention on Hopper: Gluon source of the warps that take items and bring keys and values."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from services.kernels.attention.kernel_items import blocks_of, word_of
from services.kernels.kernel_names import barrier

# Triton renamed it after 3.6.
copy_tile = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
PAGE = gl.constexpr(64)
PATH = gl.constexpr(16)
RING = gl.constexpr(32)
PART = gl.constexpr(8)
WORD = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
TILE = gl.constexpr(gl.BlockedLayout([1, 8], [1, 32], [4, 1], [1, 0]))


@gluon.jit
def stage_block(
    target,
    paged,
    ring,
    nodes,
    position,
    length,
    run,
    TREE: gl.constexpr,
    D: gl.constexpr,
):
    """Write a block's keys or values as one path sees them: pages, then the ring, then 0."""
    column = gl.arange(0, D, gl.SliceLayout(0, TILE))[None, :]
    for part in gl.static_range(0, PAGE, PART):
        row = part + gl.arange(0, PART, gl.SliceLayout(1, TILE))
        index = position + row - length
        if TREE:
            in_ring = (index >= 0) & (index < run)
            node = gl.load(nodes + index, mask=in_ring, other=0)
            source = gl.where(index < 0, paged + row * D, ring + node * D)
        else:
            source = paged + row * D
        value = gl.load(source[:, None] + column, mask=(index < run)[:, None], other=0.0)
        target.slice(part, PART, 0).store(value)
    fence_async_shared()
    barrier()


@gluon.jit
def copy_items(
    kv,
    kv_ptr,
    ring_ptr,
    page_ptr,
    live_ptr,
    length_ptr,
    slot_ptr,
    tables_ptr,
    taken_ptr,
    k_bufs,
    v_bufs,
    k_ready,
    k_free,
    v_ready,
    v_free,
    turns,
    turn_ready,
    turn_free,
    batches,
    TREE: gl.constexpr,
    STRIDE: gl.constexpr,
    PATHS: gl.constexpr,
    PATH_LENGTH: gl.constexpr,
    PATH_OWN: gl.constexpr,
    NUM_PATHS: gl.constexpr,
    MAX_PAGES: gl.constexpr,
    SLOT_STRIDE: gl.constexpr,
    GROUP: gl.constexpr,
    HKV: gl.constexpr,
    D: gl.constexpr,
    K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr,
):
    """Take items, tell the tiles, and bring their keys and values; a word of -1 ends."""
    SIZE: gl.constexpr = 2 * PAGE * D
    item = gl.program_id(0)
    turn = 0
    count = 0
    word = 0
    while word >= 0:
        word = word_of(
            item, batches, live_ptr, length_ptr, tables_ptr,
            TREE, STRIDE, PATH_LENGTH, NUM_PATHS, GROUP, HKV,
        )  # fmt: skip
        mbarrier.wait(turn_free, (turn & 1) ^ 1)
        turn += 1
        turns.store(gl.full([1], 0, gl.int32, WORD) + (word * 2 + (turn & 1)))
        mbarrier.arrive(turn_ready)
        if word >= 0:
            item = gl.atomic_add(taken_ptr, 1) + gl.num_programs(0)
            batch, _, _, path, _, run, length, first, blocks = blocks_of(
                word, live_ptr, length_ptr, tables_ptr, TREE, STRIDE, PATH_LENGTH, PATH_OWN
            )
            kv_head = (word // 16) % 64
            whole = length // PAGE
            slot = gl.load(slot_ptr + batch * STRIDE)
            pages = page_ptr + slot * MAX_PAGES
            ring = ring_ptr + slot.to(gl.int64) * SLOT_STRIDE + kv_head * (RING * D)
            nodes = tables_ptr + batch * STRIDE + PATHS + path * PATH
            paged_end = length
            if not TREE:
                paged_end = length + run
            page = gl.load(pages + first, mask=first * PAGE < paged_end, other=0)
            for place in range(first, first + blocks):
                row = page * (2 * HKV * PAGE) + kv_head * PAGE
                paged = kv_ptr + row.to(gl.int64) * D
                following = place + 1
                page = gl.load(pages + following, mask=following * PAGE < paged_end, other=0)
                at = count % K_STAGES
                mbarrier.wait(k_free.index(at), ((count // K_STAGES) & 1) ^ 1)
                if place < whole:
                    mbarrier.expect(k_ready.index(at), SIZE)
                    copy_tile(kv, [row, 0], k_ready.index(at), k_bufs.index(at))
                else:
                    stage_block(
                        k_bufs.index(at), paged, ring, nodes, place * PAGE, length, run, TREE, D
                    )
                    mbarrier.arrive(k_ready.index(at))
                at = count % V_STAGES
                mbarrier.wait(v_free.index(at), ((count // V_STAGES) & 1) ^ 1)
                if place < whole:
                    mbarrier.expect(v_ready.index(at), SIZE)
                    copy_tile(kv, [row + HKV * PAGE, 0], v_ready.index(at), v_bufs.index(at))
                else:
                    paged += HKV * PAGE * D
                    stage_block(
                        v_bufs.index(at), paged, ring + HKV * RING * D, nodes, place * PAGE,
                        length, run, TREE, D,
                    )  # fmt: skip
                    mbarrier.arrive(v_ready.index(at))
                count += 1
