"""Attention on the CPU: one key tile of 64 positions at a time, in ascending order.

A tile holds the keys of an absolute 64-position block, transposed, so that scores and outputs
are sums of scaled 64-wide vectors in a fixed order. What a row does in a block is a function of
its query, the tile and how many of the tile's positions it sees, which follow from its own
position alone; nothing else can reach its bits. Blocks are visited one after the other, so the
split borders that a parallel kernel needs are not needed here.
"""

from threading import local

import numpy as np

from services.contract.limits import MAX_PATH, PAGE
from services.kernels.jit.cpu import compiled
from services.kernels.numeric.cpu import exp32, host
from services.kernels.tree_tables import (
    COMMITTED_LENGTH,
    LEAF_PATHS,
    LIVE,
    NUM_PATHS,
    PATH_LENGTH,
    PATH_OWN,
    SLOT,
)
from services.kernels.vector.cpu import add_product, add_product_4, transpose

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_LOWEST = np.float32(-np.inf)
# Score sums take this many terms in one chain.
_STEP = 64
_scratch = local()


@compiled
def _load_keys(page, tile):
    """Copy keys [64, D] to the transposed tile [D, 64]."""
    dim = page.shape[1]
    if dim % 16:
        for i in range(PAGE):
            for d in range(dim):
                tile[d, i] = page[i, d]
        return
    for i in range(0, PAGE, 16):
        for d in range(0, dim, 16):
            source = page.ctypes.data + (i * dim + d) * 4
            transpose(source, dim, tile.ctypes.data + (d * PAGE + i) * 4, PAGE)


@compiled
def _load_values(page, tile):
    """Copy values [64, D] to the tile [64, Dp]; its columns beyond D stay 0."""
    for i in range(page.shape[0]):
        for d in range(page.shape[1]):
            tile[i, d] = page[i, d]


@compiled
def _weigh(scores, seen, top, lanes, core):
    """Turn scores [64] into weights, rescale the row's sums to the new maximum, return it."""
    for i in range(seen, PAGE):
        scores[i] = _LOWEST
    largest = top
    for i in range(16):
        low = scores[i] if scores[i] > scores[i + 16] else scores[i + 16]
        high = scores[i + 32] if scores[i + 32] > scores[i + 48] else scores[i + 48]
        low = low if low > high else high
        largest = low if low > largest else largest
    if largest != top:
        factor = exp32(top - largest)
        for i in range(16):
            lanes[i] *= factor
        for d in range(core.size):
            core[d] *= factor
    for i in range(PAGE):
        scores[i] = exp32(scores[i] - largest)
    for i in range(16):
        lanes[i] += (scores[i] + scores[i + 16]) + (scores[i + 32] + scores[i + 48])
    return largest


@compiled
def _row(query, keys, values, seen, scores, tops, lanes, cores, at):
    """Add the first `seen` positions of a tile to row `at`."""
    dim, width = keys.shape[0], values.shape[1]
    scores[0] = _ZERO
    row = scores.ctypes.data
    for d in range(0, dim, _STEP):
        part, tile = query[at].ctypes.data + d * 4, keys[d].ctypes.data
        add_product(part, dim, tile, PAGE, row, PAGE, min(_STEP, dim - d))
    tops[at] = _weigh(scores[0], seen, tops[at], lanes[at], cores[at])
    for first in range(0, width, 64):
        core = cores[at].ctypes.data + first * 4
        add_product(row, PAGE, values.ctypes.data + first * 4, width, core, width, seen)


@compiled
def _rows(query, keys, values, begin, end, scores, tops, lanes, cores):
    """Add a whole tile to rows begin..end-1, four at a time."""
    dim, width = keys.shape[0], values.shape[1]
    four = scores.ctypes.data
    for at in range(begin, end - 3, 4):
        scores[:] = _ZERO
        for d in range(0, dim, _STEP):
            part, tile = query[at].ctypes.data + d * 4, keys[d].ctypes.data
            add_product_4(part, dim, tile, PAGE, four, PAGE, min(_STEP, dim - d))
        for r in range(4):
            tops[at + r] = _weigh(scores[r], PAGE, tops[at + r], lanes[at + r], cores[at + r])
        for first in range(0, width, 64):
            core = cores[at].ctypes.data + first * 4
            add_product_4(four, PAGE, values.ctypes.data + first * 4, width, core, width, PAGE)
    for at in range(end - (end - begin) % 4, end):
        _row(query, keys, values, PAGE, scores, tops, lanes, cores, at)


@compiled
def _page(pages, head, value_tile, key_tile):
    """Load a page's tiles of one head; return the values, in place where the width allows."""
    _load_keys(pages[0, head], key_tile)
    if pages.shape[3] == value_tile.shape[1]:
        return pages[1, head]
    _load_values(pages[1, head], value_tile)
    return value_tile


@compiled
def _begin(q, first, count, head, group, query, tops, lanes, cores):
    """Load the scaled queries of one kv head, (row, query head) by (row, query head)."""
    dim = q.shape[2]
    scale = _ONE / np.sqrt(np.float32(dim))
    for row in range(count):
        for g in range(group):
            source, target = q[first + row, head * group + g], query[row * group + g]
            for d in range(dim):
                target[d] = source[d] * scale
    tops[: count * group] = _LOWEST
    lanes[: count * group] = _ZERO
    cores[: count * group] = _ZERO


@compiled
def _end(out, first, count, head, group, lanes, cores):
    for row in range(count):
        for g in range(group):
            at = row * group + g
            total, core = lanes[at], cores[at]
            for half in (8, 4, 2, 1):
                for i in range(half):
                    total[i] += total[i + half]
            target = out[first + row, head * group + g]
            for d in range(target.size):
                target[d] = core[d] / total[0]


@compiled
def _candidates(table, block, ring, head, group, buffers, shown):
    """Add one block that holds candidate keys: per path, the rows that the path owns."""
    query, key_tile, value_tile, scores, tops, lanes, cores = buffers
    length = table[COMMITTED_LENGTH]
    shown[:] = -1
    for path in range(table[NUM_PATHS]):
        nodes = table[LEAF_PATHS + path * MAX_PATH : LEAF_PATHS + (path + 1) * MAX_PATH]
        for index in range(table[PATH_LENGTH + path]):
            node, column = nodes[index], length + index - block * PAGE
            if 0 <= column < PAGE and shown[index] != node:
                shown[index] = node
                key, value = ring[0, head, node], ring[1, head, node]
                for d in range(key.size):
                    key_tile[d, column] = key[d]
                    value_tile[column, d] = value[d]
        for index in range(table[PATH_OWN + path], table[PATH_LENGTH + path]):
            seen = min(PAGE, length + index + 1 - block * PAGE)
            for g in range(group if seen > 0 else 0):
                at = nodes[index] * group + g
                _row(query, key_tile, value_tile, seen, scores, tops, lanes, cores, at)


@compiled
def _attend(q, kv, kv_ring, layer, page_table, tables, out, buffers, shown):
    query, key_tile, value_tile, scores, tops, lanes, cores = buffers
    num_kv = kv.shape[2]
    group, rows = q.shape[1] // num_kv, q.shape[0] // tables.shape[0]
    for index in range(tables.shape[0]):
        table, first = tables[index], index * rows
        slot, live, length = table[SLOT], table[LIVE], table[COMMITTED_LENGTH]
        out[first + live : first + rows] = _ZERO
        if live == 0:
            continue
        last = length + table[PATH_LENGTH] - 1
        for head in range(num_kv):
            _begin(q, first, live, head, group, query, tops, lanes, cores)
            for block in range(length // PAGE):
                page = kv[page_table[slot, block]]
                values = _page(page, head, value_tile, key_tile)
                _rows(query, key_tile, values, 0, live * group, scores, tops, lanes, cores)
            for block in range(length // PAGE, last // PAGE + 1):
                if block * PAGE < length:
                    page = kv[page_table[slot, block]]
                    _load_keys(page[0, head], key_tile)
                    _load_values(page[1, head], value_tile)
                _candidates(table, block, kv_ring[slot, layer], head, group, buffers, shown)
            _end(out, first, live, head, group, lanes, cores)


@compiled
def _prefill(q, kv, page_table, slots, starts, counts, out, buffers):
    query, key_tile, value_tile, scores, tops, lanes, cores = buffers
    num_kv = kv.shape[2]
    group, rows = q.shape[1] // num_kv, q.shape[0] // slots.size
    for index in range(slots.size):
        start, count, first = starts[index], counts[index], index * rows
        out[first + count : first + rows] = _ZERO
        blocks = (start + count + PAGE - 1) // PAGE if count else 0
        for head in range(num_kv):
            _begin(q, first, count, head, group, query, tops, lanes, cores)
            for block in range(blocks):
                page = kv[page_table[slots[index], block]]
                values = _page(page, head, value_tile, key_tile)
                begin = min(count, max(0, block * PAGE - start))
                whole = min(count, max(0, block * PAGE + PAGE - 1 - start))
                for at in range(begin * group, whole * group):
                    seen = start + at // group + 1 - block * PAGE
                    _row(query, key_tile, values, seen, scores, tops, lanes, cores, at)
                _rows(
                    query,
                    key_tile,
                    values,
                    whole * group,
                    count * group,
                    scores,
                    tops,
                    lanes,
                    cores,
                )
            _end(out, first, count, head, group, lanes, cores)


def _buffers(rows, dim):
    """Return this thread's scratch: queries, tiles, scores, and each row's running sums."""
    kept = _scratch.__dict__
    if (rows, dim) not in kept:
        width = -dim % 64 + dim
        sizes = (
            (rows, dim),
            (dim, PAGE),
            (PAGE, width),
            (4, PAGE),
            rows,
            (rows, 16),
            (rows, width),
        )
        kept[rows, dim] = tuple(np.zeros(size, np.float32) for size in sizes)
    return kept[rows, dim]


def attend(q, kv, kv_ring, layer, page_table, tables, out):
    """Do what attention.attend says."""
    rows = q.shape[0] // tables.block.shape[0] * (q.shape[1] // kv.shape[2])
    _attend(
        host(q),
        host(kv),
        host(kv_ring),
        layer,
        host(page_table),
        host(tables.block),
        host(out),
        _buffers(rows, q.shape[2]),
        np.empty(MAX_PATH, np.int32),
    )


def attend_prefill(q, kv, page_table, slots, starts, counts, out):
    """Do what attention.attend_prefill says."""
    rows = q.shape[0] // slots.shape[0] * (q.shape[1] // kv.shape[2])
    _prefill(
        host(q),
        host(kv),
        host(page_table),
        host(slots),
        host(starts),
        host(counts),
        host(out),
        _buffers(rows, q.shape[2]),
    )
