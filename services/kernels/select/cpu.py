"""Selection in numba: maxima, ranked values, k-th values, survivors of filters."""

import numpy as np
import torch

from services.kernels.fixed.cpu import total_weight, weight
from services.kernels.jit.cpu import compiled

NEG_INF = np.float32(-np.inf)
SORTED_K = 64


@compiled
def largest(values):
    """Return (value, id) of the maximum, the lowest id on ties; a NaN never wins."""
    best, index = NEG_INF, 0
    for v in range(values.shape[0]):
        if values[v] > best:
            best, index = values[v], v
    return best, index


@compiled
def rank(values, lowest_first, ranked, ids):
    """Fill `ranked` and `ids` with the best values in order; ties by id, NaN as -inf."""
    count, filled, size = ranked.shape[0], 0, values.shape[0]
    for i in range(size):
        v = i if lowest_first else size - 1 - i
        x = values[v] if values[v] == values[v] else NEG_INF
        if filled == count and (count == 0 or x <= ranked[count - 1]):
            continue
        filled = min(filled + 1, count)
        place = filled - 1
        while place > 0 and ranked[place - 1] < x:
            ranked[place], ids[place] = ranked[place - 1], ids[place - 1]
            place -= 1
        ranked[place], ids[place] = x, v


@compiled
def threshold(keys, weights, size, limit):
    """Return (key, weight above it): the lowest key whose weight above is below `limit`."""
    prefix, mask, above = np.uint32(0), np.uint32(0), np.int64(0)
    for step in range(4):
        shift = np.uint32(24 - 8 * step)
        histogram = np.zeros(256, np.int64)
        for i in range(size):
            if keys[i] & mask == prefix:
                histogram[(keys[i] >> shift) & np.uint32(255)] += weights[i]
        digit = 255
        while digit > 0 and np.float64(above + histogram[digit]) < limit:
            above += histogram[digit]
            digit -= 1
        prefix |= np.uint32(digit) << shift
        mask |= np.uint32(255) << shift
    return prefix, above


@compiled
def write_keys(values, ids, size, keys):
    """Write unsigned keys that sort as the values do; both zeros share one key."""
    bits = values.view(np.uint32)
    for i in range(size):
        word = bits[ids[i]]
        word = np.uint32(0) if word == np.uint32(0x80000000) else word
        keys[i] = ~word if word >> np.uint32(31) else word | np.uint32(0x80000000)


@compiled
def kth_value(values, k, ids, keys, weights):
    """Return the k-th largest value; -inf if there are not so many."""
    if k > SORTED_K:
        size = 0
        for v in range(values.shape[0]):
            if values[v] == values[v]:
                ids[size], weights[size] = v, 1
                size += 1
        if k >= size:
            return NEG_INF
        write_keys(values, ids, size, keys)
        key, _ = threshold(keys, weights, size, np.float64(k))
        low = np.inf
        for i in range(size):
            if keys[i] == key:
                low = values[ids[i]]
        return np.float32(low)
    ranked = np.full(k, NEG_INF, np.float32)
    for v in range(values.shape[0]):
        if values[v] > ranked[k - 1]:
            place = k - 1
            while place > 0 and ranked[place - 1] < values[v]:
                ranked[place] = ranked[place - 1]
                place -= 1
            ranked[place] = values[v]
    return ranked[k - 1]


@compiled
def survivors(values, best, margin, scale, top_k, top_p, scratch):
    """Write ids (ascending) and weights of what the filters leave; return their number."""
    ids, keys, exponents, weights = scratch.ids, scratch.keys, scratch.exponents, scratch.weights
    floor = np.float64(best) - margin
    if 0 < top_k < values.shape[0]:
        floor = max(floor, np.float64(kth_value(values, top_k, ids, keys, weights)))
    size = 0
    for v in range(values.shape[0]):
        if np.float64(values[v]) >= floor and values[v] > NEG_INF:
            ids[size] = v
            size += 1
    top = np.float64(best)
    for i in range(size):
        exponents[i] = (np.float64(values[ids[i]]) - top) * scale
    # Apart from the gather above, so that this loop runs on vectors.
    for i in range(size):
        weights[i] = weight(exponents[i])
    if top_p < 1.0:
        total = total_weight(weights, size)
        size = drop_small(np.int64((1.0 - top_p) * total / (4 * size)), size, ids, weights)
        write_keys(values, ids, size, keys)
        return nucleus(top_p * np.float64(total), size, ids, keys, weights)
    return size


@compiled
def drop_small(least, size, ids, weights):
    """Keep entries of at least this weight; the others together are too light for top-p."""
    kept = 0
    for i in range(size):
        if weights[i] >= least:
            ids[kept], weights[kept] = ids[i], weights[i]
            kept += 1
    return kept


@compiled
def nucleus(limit, size, ids, keys, weights):
    """Keep entries, by value then id, while the weight before them is below `limit`."""
    key, before = threshold(keys, weights, size, limit)
    kept = 0
    for i in range(size):
        keep = keys[i] > key
        if keys[i] == key:
            keep = np.float64(before) < limit
            before += weights[i]
        if keep:
            ids[kept], weights[kept] = ids[i], weights[i]
            kept += 1
    return kept


@compiled
def plain_weights(values, best, scratch):
    """Write ids and weights of every finite value at scale 1; return their number."""
    size = 0
    for v in range(values.shape[0]):
        if values[v] > NEG_INF:
            scratch.ids[size] = v
            scratch.exponents[size] = np.float64(values[v]) - np.float64(best)
            size += 1
    for i in range(size):
        scratch.weights[i] = weight(scratch.exponents[i])
    return size


@compiled
def _top_ranked(logits, lowest_first, values, ids):
    for row in range(logits.shape[0]):
        rank(logits[row], lowest_first, values[row], ids[row])


def top_ranked(logits, k, values, ids, lowest_first=True, totals=None):
    """Do what select.top_ranked says."""
    _top_ranked(logits.numpy(), lowest_first, values.numpy(), ids.numpy())
    if totals is not None:
        torch.logsumexp(logits, 1, out=totals)
