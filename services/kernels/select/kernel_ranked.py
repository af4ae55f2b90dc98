"""Ordered selection in Triton: one launch keeps maxima of groups, a second one ranks each row.

The K-th largest maximum of coarse sets of groups is a floor that at least K values reach. The
second launch lists the groups that reach it, reads those again, and ranks what reaches the floor
by counting. Rows with too many of either (ties) are tried with twice the room, then ranked by K
scans.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

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
def places(wanted, THREADS: tl.constexpr):
    """Return a place of its own for every wanted entry, from 0 on, and their number.

    Places go column by column, a column a thread: a scan of all entries in order takes three
    times the instructions.
    """
    SIZE: tl.constexpr = wanted.shape[0]
    ones = tl.reshape(wanted.to(tl.int32), [SIZE // THREADS, THREADS])
    mine = tl.sum(ones, 0)
    place = (tl.cumsum(mine, 0) - mine)[None, :] + tl.cumsum(ones, 0) - ones
    return tl.ravel(place), tl.sum(mine, 0)


@triton.jit
def listed_tokens(listed, count, vocab, PICKED: tl.constexpr, TILE: tl.constexpr):
    """Return the ids of all values of the first `count` groups listed, and which are real."""
    lane = tl.arange(0, PICKED * (TILE // GROUPS))
    place = lane // (TILE // GROUPS)
    group = tl.load(listed + place, mask=place < count, other=0, cache_modifier=".cg")
    within = lane % (TILE // GROUPS)
    far = within // PIECE * (GROUPS * PIECE) + within % PIECE
    token = group // GROUPS * TILE + group % GROUPS * PIECE + far
    return token, (place < count) & (token < vocab)


@triton.jit
def largest_floor(best, K: tl.constexpr, COARSE: tl.constexpr):
    """Return a value that at least K of `best` reach, if it has K."""
    SIZE: tl.constexpr = best.shape[0]
    top = tl.max(tl.reshape(best, [SIZE // COARSE, COARSE]), 0)
    above = tl.sum((top[:, None] > top[None, :]).to(tl.int32), 0)
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
    rank = tl.sum((word[:, None] > word[None, :]).to(tl.int32), 0)
    kept = inside & (rank < K)
    tl.store(ids + row * K + rank, token, mask=kept)
    tl.store(values + row * K + rank, x, mask=kept)


@triton.jit
def rank_near(line, groups, wanted, place, num_picked, floor, found_x, found_ids, row, values, ids,
              vocab, K: tl.constexpr, TILE: tl.constexpr, PICKED: tl.constexpr,
              LOWEST_FIRST: tl.constexpr, THREADS: tl.constexpr):  # fmt: skip
    """Rank what reaches the floor in up to PICKED groups; return 0 if there is too much of it."""
    done = 0
    if num_picked <= PICKED:
        tl.store(found_ids + place, groups, mask=wanted)
        tl.debug_barrier()
        tokens, real = listed_tokens(found_ids, num_picked, vocab, PICKED, TILE)
        near = clean(line, tokens, real)
        hit = real & (near >= floor)
        spot, count = places(hit, THREADS)
        if count <= PICKED:
            tl.debug_barrier()
            tl.store(found_x + spot, near, mask=hit)
            tl.store(found_ids + spot, tokens, mask=hit)
            tl.debug_barrier()
            rank_listed(found_x, found_ids, count, row, values, ids, K, PICKED, LOWEST_FIRST)
            done = 1
    return done


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
                  TOTALS: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Reduce one tile of one row to the maxima of its groups; EARLY calls the ranking at once."""
    if EARLY:
        gdc_launch_dependents()
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
                COARSE: tl.constexpr, PICKED: tl.constexpr, LOWEST_FIRST: tl.constexpr,
                TOTALS: tl.constexpr, WAITS: tl.constexpr, THREADS: tl.constexpr):  # fmt: skip
    """Rank one row from the maxima of its groups; WAITS: it is launched before they are there."""
    if WAITS:
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    line = logits + row * row_stride
    lane = tl.arange(0, MERGE)
    # Not in memory order: so that a thread holds single entries, as in the scattered stores below.
    groups = lane ^ 1
    inside = groups < num_blocks * GROUPS
    maximum = tl.load(maxima + row * num_blocks * GROUPS + groups, mask=inside, other=NEG_INF)
    floor = largest_floor(maximum, K, COARSE)
    wanted = inside & (maximum >= floor)
    place, num_picked = places(wanted, THREADS)
    found_x += row * (2 * PICKED)
    found_ids += row * (2 * PICKED)
    done = rank_near(line, groups, wanted, place, num_picked, floor, found_x, found_ids, row,
                     values, ids, vocab, K, TILE, PICKED, LOWEST_FIRST, THREADS)  # fmt: skip
    if done == 0:
        tl.debug_barrier()
        done = rank_near(line, groups, wanted, place, num_picked, floor, found_x, found_ids, row,
                         values, ids, vocab, K, TILE, 2 * PICKED, LOWEST_FIRST,
                         THREADS)  # fmt: skip
    if done == 0:
        rank_by_scans(line, row, values, ids, vocab, K, LOWEST_FIRST)
    if TOTALS:
        sums += row * (2 * num_blocks)
        tl.store(totals + row, total_of_sums(sums, num_blocks, MERGE // GROUPS))
