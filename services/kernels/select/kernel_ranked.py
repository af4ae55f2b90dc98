"""Ordered selection in Triton: each block ranks its tile, the last block of a row merges."""

import triton
import triton.language as tl

from services.kernels.fixed.kernel_fixed import sort_key

LOWEST = tl.constexpr(-(1 << 63))
ID_MASK = tl.constexpr(0xFFFFFFFF)
ID_TOP = tl.constexpr(0x7FFFFFFF)
NEG_INF = tl.constexpr(float("-inf"))


@triton.jit
def pack(values, ids, LOWEST_FIRST: tl.constexpr):
    """Return int64 words that sort by value, then by id; every id has its own word."""
    values = tl.where(values == values, values, NEG_INF)
    tie = ids.to(tl.int64)
    if LOWEST_FIRST:
        tie = ID_TOP - tie
    return (sort_key(values).to(tl.int64) << 32) | tie


@triton.jit
def packed_id(words, LOWEST_FIRST: tl.constexpr):
    """Return the ids of packed words."""
    tie = words & ID_MASK
    if LOWEST_FIRST:
        tie = ID_TOP - tie
    return tie.to(tl.int32)


@triton.jit
def unpacked_value(words):
    """Return the fp32 values of packed words."""
    key = (words >> 32).to(tl.int32)
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def top_ranked_kernel(logits, row_stride, partial, arrivals, values, ids, vocab,
                      K: tl.constexpr, TILE: tl.constexpr, MERGE: tl.constexpr,
                      LOWEST_FIRST: tl.constexpr):  # fmt: skip
    """Rank one tile of one row; the row's last program ranks all tiles' results."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    num_blocks = tl.num_programs(1)
    offsets = block * TILE + tl.arange(0, TILE)
    inside = offsets < vocab
    x = tl.load(logits + row * row_stride + offsets, mask=inside, other=0.0)
    words = tl.where(inside, pack(x, offsets, LOWEST_FIRST), LOWEST)
    mine = partial + (row * num_blocks + block) * K
    for rank in range(K):
        best = tl.max(words, 0)
        tl.store(mine + rank, best)
        words = tl.where(words == best, LOWEST, words)
    tl.debug_barrier()
    if tl.atomic_add(arrivals + row, 1, sem="acq_rel") == num_blocks - 1:
        lanes = tl.arange(0, MERGE)
        mask = lanes < num_blocks * K
        found = tl.load(
            partial + row * num_blocks * K + lanes, mask=mask, other=LOWEST, cache_modifier=".cg"
        )
        for rank in range(K):
            best = tl.max(found, 0)
            token = packed_id(best, LOWEST_FIRST)
            value = tl.load(logits + row * row_stride + token)
            tl.store(ids + row * K + rank, token)
            tl.store(values + row * K + rank, tl.where(value == value, value, NEG_INF))
            found = tl.where(found == best, LOWEST, found)
        tl.store(arrivals + row, 0)
