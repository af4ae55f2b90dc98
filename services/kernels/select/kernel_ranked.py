"""Ordered selection in Triton: each block ranks its tile, the last block of a row merges."""

import triton
import triton.language as tl

from services.kernels.fixed.kernel_fixed import LOW_KEY, sort_key

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
def take_best(keys, ids, LOWEST_FIRST: tl.constexpr):
    """Return the best key, its id, and the keys without it; 32-bit reductions alone."""
    best = tl.max(keys, 0)
    if LOWEST_FIRST:
        token = tl.min(tl.where(keys == best, ids, ID_TOP), 0)
    else:
        token = tl.max(tl.where(keys == best, ids, -1), 0)
    return best, token, tl.where(ids == token, LOW_KEY, keys)


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
    keys = tl.where(inside, sort_key(tl.where(x == x, x, NEG_INF)), LOW_KEY)
    mine = partial + (row * num_blocks + block) * (2 * K)
    for rank in range(K):
        best, token, keys = take_best(keys, offsets, LOWEST_FIRST)
        tl.store(mine + rank, best)
        tl.store(mine + K + rank, token)
    tl.debug_barrier()
    if tl.atomic_add(arrivals + row, 1, sem="acq_rel") == num_blocks - 1:
        lanes = tl.arange(0, MERGE)
        mask = lanes < num_blocks * K
        places = partial + row * num_blocks * (2 * K) + lanes // K * (2 * K) + lanes % K
        found = tl.load(places, mask=mask, other=LOW_KEY, cache_modifier=".cg")
        tokens = tl.load(places + K, mask=mask, other=-1, cache_modifier=".cg")
        for rank in range(K):
            best, token, found = take_best(found, tokens, LOWEST_FIRST)
            value = tl.load(logits + row * row_stride + token)
            tl.store(ids + row * K + rank, token)
            tl.store(values + row * K + rank, tl.where(value == value, value, NEG_INF))
        tl.store(arrivals + row, 0)
