"""Filters and the inverse CDF in Triton, on a survivor list or on the whole vocabulary.

Weights are integers, so a list and the whole vocabulary give the same token.
"""

import triton
import triton.language as tl

from services.kernels.fixed.kernel_fixed import (
    HIGH_KEY,
    LOW_KEY,
    sort_key,
    target_weight,
    weight,
)
from services.kernels.sample.kernel_values import NEG_INF, NO_ID, tile_values


@triton.jit
def kth_key(keys, k):
    """Return the k-th largest of a tile of keys."""
    low = tl.full([], LOW_KEY, tl.int64)
    high = tl.full([], HIGH_KEY, tl.int64) + 1
    for _ in range(32):
        middle = (low + high) >> 1
        enough = tl.sum((keys >= middle.to(tl.int32)).to(tl.int32), 0) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return low.to(tl.int32)


@triton.jit
def load_tile(row, survivors, start, size, top, floor, scale, cut, LISTED: tl.constexpr,
              TILE: tl.constexpr):  # fmt: skip
    """Return ids, keys and weights of a tile of candidates; weight 0 for what is cut."""
    offsets = start + tl.arange(0, TILE)
    if LISTED:
        values, listed_ids, firsts, capacity = survivors
        first, second, third = firsts
        part = (offsets >= first).to(tl.int32) + (offsets >= second) + (offsets >= third)
        skipped = tl.where(part == 1, first, tl.where(part == 2, second, third))
        place = part * capacity + offsets - tl.where(part == 0, 0, skipped)
        inside = offsets < size
        x = tl.load(values + place, mask=inside, other=NEG_INF)
        ids = tl.load(listed_ids + place, mask=inside, other=NO_ID)
    else:
        x = tile_values(row, offsets)
        ids = offsets
    wide, keys = x.to(tl.float64), sort_key(x)
    keep = (wide >= floor) & (x > NEG_INF) & (keys >= cut)
    weights = tl.where(keep, weight((wide - top) * scale), 0)
    return ids, keys, weights


@triton.jit
def kth_of_all(row, k, TILE: tl.constexpr):
    """Return the k-th largest key of the whole vocabulary."""
    lanes = tl.arange(0, TILE)
    low = tl.full([], LOW_KEY, tl.int64)
    high = tl.full([], HIGH_KEY, tl.int64) + 1
    for _ in range(32):
        middle = (low + high) >> 1
        count = tl.full([], 0, tl.int32)
        for start in range(0, row[5], TILE):
            ids = start + lanes
            keys = sort_key(tile_values(row, ids))
            above = (keys >= middle.to(tl.int32)) & (ids < row[5])
            count += tl.sum(above.to(tl.int32), 0)
        low = tl.where(count >= k, middle, low)
        high = tl.where(count >= k, high, middle)
    return low.to(tl.int32)


@triton.jit
def weight_above(row, survivors, size, top, floor, scale, cut, key, LISTED: tl.constexpr,
                 TILE: tl.constexpr):  # fmt: skip
    """Return the weight of candidates whose key is above `key`."""
    total = tl.full([], 0, tl.int64)
    for start in range(0, size, TILE):
        _, keys, weights = load_tile(
            row, survivors, start, size, top, floor, scale, cut, LISTED, TILE
        )
        total += tl.sum(tl.where(keys > key, weights, 0), 0)
    return total


@triton.jit
def nucleus_key(row, survivors, size, top, floor, scale, cut, limit, LISTED: tl.constexpr,
                TILE: tl.constexpr):  # fmt: skip
    """Return the lowest key kept by top-p: the weight above it is below `limit`."""
    low = tl.full([], LOW_KEY, tl.int64)
    high = tl.full([], HIGH_KEY, tl.int64)
    if LISTED:
        _, keys, weights = load_tile(row, survivors, 0, size, top, floor, scale, cut, LISTED, TILE)
    for _ in range(32):
        middle = ((low + high) >> 1).to(tl.int32)
        if LISTED:
            above = tl.sum(tl.where(keys > middle, weights, 0), 0)
        else:
            above = weight_above(row, survivors, size, top, floor, scale, cut, middle, LISTED, TILE)
        enough = above.to(tl.float64) < limit
        high = tl.where(enough, middle.to(tl.int64), high)
        low = tl.where(enough, low, middle.to(tl.int64))
    return high.to(tl.int32)


@triton.jit
def keep_nucleus(keys, weights, key, before, limit, ties):
    """Return a tile's weights after top-p, and the number of ties at `key` so far."""
    tied = ((keys == key) & (weights > 0)).to(tl.int64)
    rank = ties + tl.cumsum(tied, 0) - tied
    kept = (keys > key) | ((tied > 0) & ((before + rank * weights).to(tl.float64) < limit))
    return tl.where(kept, weights, 0), ties + tl.sum(tied, 0)


@triton.jit
def resolve(row, survivors, size, top, floor, scale, cut, all_weight, top_p, word, first, stop,
            running, LISTED: tl.constexpr, TILE: tl.constexpr):  # fmt: skip
    """Return the token drawn from the candidates above `cut` by top-p and the inverse CDF.

    The token is known to lie in [first, stop), after `running` weight.
    """
    key = tl.full([], LOW_KEY, tl.int32)
    before = tl.full([], 0, tl.int64)
    limit = top_p * all_weight.to(tl.float64)
    total = all_weight
    if top_p < 1.0:
        key = nucleus_key(row, survivors, size, top, floor, scale, cut, limit, LISTED, TILE)
        before = weight_above(row, survivors, size, top, floor, scale, cut, key, LISTED, TILE)
        total = before * 0
        ties = before * 0
        for start in range(0, size, TILE):
            _, keys, weights = load_tile(
                row, survivors, start, size, top, floor, scale, cut, LISTED, TILE
            )
            weights, ties = keep_nucleus(keys, weights, key, before, limit, ties)
            total += tl.sum(weights, 0)
    target = target_weight(total, word)
    ties = before * 0
    token = tl.full([], NO_ID, tl.int32)
    for start in range(first, stop, TILE):
        ids, keys, weights = load_tile(
            row, survivors, start, size, top, floor, scale, cut, LISTED, TILE
        )
        if top_p < 1.0:
            weights, ties = keep_nucleus(keys, weights, key, before, limit, ties)
        passed = running + tl.sum(weights, 0)
        if (token == NO_ID) & (passed > target):
            reached = running + tl.cumsum(weights, 0)
            token = tl.min(tl.where(reached > target, ids, NO_ID), 0)
        running = passed
    return token
