"""Ordered selection in Triton: one launch keeps maxima of groups, a second one ranks each row.

The K-th largest maximum of coarse sets of groups is a floor that at least K values reach. The
second launch lists the groups that reach it, reads those again, and ranks what reaches the floor
by counting. Rows with too many of either (ties) are ranked by K scans.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from services.kernels.fixed.kernel_fixed import sort_key

LOWEST = tl.constexpr(-(1 << 63))
HIGHEST = tl.constexpr((1 << 63) - 1)
ID_MASK = tl.constexpr(0xFFFFFFFF)
ID_TOP = tl.constexpr(0x7FFFFFFF)
INF = tl.constexpr(float("inf"))
NEG_INF = tl.constexpr(float("-inf"))
# A tile is read as [TILE / 1024, GROUPS, PIECE]: a group is one piece of each kibi-element.
GROUPS = tl.constexpr(64)
PIECE = tl.constexpr(16)
SCAN = tl.constexpr(2048)


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
def clean(logits, offsets, mask):
    """Load values; what is NaN or masked reads as -inf."""
    x = tl.load(logits + offsets, mask=mask, other=NEG_INF)
    return tl.where(x == x, x, NEG_INF)


@triton.jit
def tile_offsets(block, group, TILE: tl.constexpr):
    """Return the offsets of `group` [1, n, 1] (of GROUPS) of a tile, as [TILE / 1024, n, PIECE]."""
    far = tl.arange(0, TILE // (GROUPS * PIECE))[:, None, None] * (GROUPS * PIECE)
    return block * TILE + far + group * PIECE + tl.arange(0, PIECE)[None, None, :]


@triton.jit
def largest_floor(best, K: tl.constexpr, COARSE: tl.constexpr):
    """Return a value that at least K of `best` reach, if it has K."""
    SIZE: tl.constexpr = best.shape[0]
    top = tl.max(tl.reshape(best, [SIZE // COARSE, COARSE]), 0)
    above = tl.sum((top[None, :] > top[:, None]).to(tl.int32), 1)
    return tl.min(tl.where(above < K, top, INF), 0)


@triton.jit
def rank_listed(found_x, found_ids, count, row, values, ids, K: tl.constexpr,
                LISTED: tl.constexpr, LOWEST_FIRST: tl.constexpr):  # fmt: skip
    """Store the K best of the first `count` values and ids found, each at its own rank."""
    lane = tl.arange(0, LISTED)
    inside = lane < count
    x = tl.load(found_x + lane, mask=inside, other=0.0, cache_modifier=".cg")
    token = tl.load(found_ids + lane, mask=inside, other=0, cache_modifier=".cg")
    word = tl.where(inside, pack(x, token, LOWEST_FIRST), LOWEST)
    rank = tl.sum((word[None, :] > word[:, None]).to(tl.int32), 1)
    kept = inside & (rank < K)
    tl.store(ids + row * K + rank, token, mask=kept)
    tl.store(values + row * K + rank, x, mask=kept)


@triton.jit
def rank_by_scans(logits, row, values, ids, vocab, K: tl.constexpr,
                  LOWEST_FIRST: tl.constexpr):  # fmt: skip
    """Store the K best of a row by K scans of it, whatever its ties."""
    last = tl.full([], HIGHEST, tl.int64)
    for rank in range(K):
        best = tl.full([SCAN], LOWEST, tl.int64)
        for start in range(0, vocab, SCAN):
            offsets = start + tl.arange(0, SCAN)
            inside = offsets < vocab
            word = pack(clean(logits, offsets, inside), offsets, LOWEST_FIRST)
            best = tl.maximum(best, tl.where(inside & (word < last), word, LOWEST))
        last = tl.max(best, 0)
        token = packed_id(last, LOWEST_FIRST)
        tl.store(ids + row * K + rank, token)
        tl.store(values + row * K + rank, clean(logits, token, token >= 0))


@triton.jit
def store_sum(sums, x, best):
    """Store a tile's maximum (0 for none) and its sum of exponentials below that."""
    top = tl.max(best, 0)
    top = tl.where(top > NEG_INF, top, 0.0)
    tl.store(sums, top)
    tl.store(sums + 1, tl.sum(tl.sum(tl.exp(x - top), 0), 0))


@triton.jit
def total_of_sums(sums, num_blocks, BLOCKS: tl.constexpr):
    """Return the logarithm of a row's sum of exponentials."""
    lane = tl.arange(0, BLOCKS)
    inside = lane < num_blocks
    tops = tl.load(sums + 2 * lane, mask=inside, other=NEG_INF)
    part = tl.load(sums + 2 * lane + 1, mask=inside, other=0.0)
    top = tl.max(tops, 0)
    return top + tl.log(tl.sum(part * tl.exp(tops - top), 0))


@triton.jit
def maxima_kernel(logits, row_stride, maxima, sums, vocab, TILE: tl.constexpr,
                  TOTALS: tl.constexpr):  # fmt: skip
    """Reduce one tile of one row to the maxima of its groups."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = row * tl.num_programs(0) + block
    far = tl.arange(0, TILE // (GROUPS * PIECE))[:, None] * (GROUPS * PIECE)
    offsets = block * TILE + far + tl.arange(0, GROUPS * PIECE)[None, :]
    x = clean(logits + row * row_stride, offsets, offsets < vocab)
    best = tl.max(tl.reshape(tl.max(x, 0), [GROUPS, PIECE]), 1)
    tl.store(maxima + place * GROUPS + tl.arange(0, GROUPS), best)
    if TOTALS:
        store_sum(sums + 2 * place, x, best)


@triton.jit(do_not_specialize=["num_blocks"])
def rank_kernel(logits, row_stride, maxima, sums, found_x, found_ids, values, ids, totals, vocab,
                num_blocks, K: tl.constexpr, TILE: tl.constexpr, MERGE: tl.constexpr,
                COARSE: tl.constexpr, PICKED: tl.constexpr, LISTED: tl.constexpr,
                LOWEST_FIRST: tl.constexpr, TOTALS: tl.constexpr,
                EARLY: tl.constexpr):  # fmt: skip
    """Rank one row from the maxima of its groups; with EARLY it may start before they are there."""
    if EARLY:
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    line = logits + row * row_stride
    groups = tl.arange(0, MERGE)
    inside = groups < num_blocks * GROUPS
    maximum = tl.load(maxima + row * num_blocks * GROUPS + groups, mask=inside, other=NEG_INF)
    floor = largest_floor(maximum, K, COARSE)
    wanted = inside & (maximum >= floor)
    place = tl.cumsum(wanted.to(tl.int32), 0) - 1
    num_picked = tl.sum(wanted.to(tl.int32), 0)
    count = LISTED + 1
    found_x += row * LISTED
    found_ids += row * LISTED
    if num_picked <= PICKED:
        tl.store(found_ids + place, groups, mask=wanted)
        tl.debug_barrier()
        picks = tl.arange(0, PICKED)
        chosen = picks < num_picked
        group = tl.load(found_ids + picks, mask=chosen, other=0, cache_modifier=".cg")
        group = group[None, :, None]
        tokens = tile_offsets(group // GROUPS, group % GROUPS, TILE)
        real = chosen[None, :, None] & (tokens < vocab)
        near = clean(line, tokens, real)
        hit = tl.ravel(real & (near >= floor))
        spot = tl.cumsum(hit.to(tl.int32), 0) - 1
        count = tl.sum(hit.to(tl.int32), 0)
        if count <= LISTED:
            tl.debug_barrier()
            tl.store(found_x + spot, tl.ravel(near), mask=hit)
            tl.store(found_ids + spot, tl.ravel(tokens), mask=hit)
            tl.debug_barrier()
            rank_listed(found_x, found_ids, count, row, values, ids, K, LISTED, LOWEST_FIRST)
    if count > LISTED:
        rank_by_scans(line, row, values, ids, vocab, K, LOWEST_FIRST)
    if TOTALS:
        sums += row * (2 * num_blocks)
        tl.store(totals + row, total_of_sums(sums, num_blocks, MERGE // GROUPS))
