"""Gated DeltaNet on the CPU: one call a layer does gates, norms and the tree.

The tree is walked depth first, so a chain of nodes updates its state tile in place while it
stays in the first caches; leaves only read.
"""

from threading import local

import numpy as np

from services.contract.limits import MAX_ROWS
from services.kernels.delta.cpu import load_tile, prepare, step, store_tile
from services.kernels.jit.cpu import compiled
from services.kernels.numeric.cpu import derived, host, host_rows
from services.kernels.state_words import (
    ACTIVE_SET,
    CYCLE,
    EPOCH,
    PATH_CYCLE,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_NODES,
)
from services.kernels.tree_tables import LIVE, PARENTS, SLOT

_scratch = local()


@compiled
def _plan(table, events):
    """Write (node, source tile, target tile or -1) in depth-first order; return their count.

    Of a node's children come the leaves first, then the lower subtrees in tiles of their own,
    last the highest one in place.
    """
    live = table[LIVE]
    parents = table[PARENTS : PARENTS + MAX_ROWS]
    height = np.zeros(MAX_ROWS, np.int32)
    for node in range(live - 1, 0, -1):
        height[parents[node]] = max(height[parents[node]], height[node] + 1)
    stack = np.zeros((MAX_ROWS + 1, 4), np.int32)
    stack[0, 2] = 0 if live > 1 else -1
    stack[0, 3] = 1
    depth, count = 1, 0
    while depth:
        depth -= 1
        node, source, target, free = stack[depth]
        events[count, 0] = node
        events[count, 1] = source
        events[count, 2] = target
        count += 1
        depth = _push_children(parents[:live], height, node, target, free, stack, depth)
    return count


@compiled
def _push_children(parents, height, node, tile, free, stack, depth):
    highest = -1
    for child in range(node + 1, parents.size):
        if parents[child] == node and (highest < 0 or height[child] > height[highest]):
            highest = child
    for turn in range(3):
        for child in range(node + 1, parents.size):
            place = 0 if child == highest else (1 if height[child] else 2)
            if parents[child] == node and place == turn:
                own = free if turn == 1 else tile
                stack[depth, 0] = child
                stack[depth, 1] = tile
                stack[depth, 2] = own if height[child] else -1
                stack[depth, 3] = free + 1 if turn == 1 else free
                depth += 1
    return depth


@compiled
def _scan(rings, params, recurrent, words, layer, tables, out, buffers):
    (mixed_ring, ab_ring), (rates, dt_bias), (keys, gates, tiles, work) = rings, params, buffers
    num_heads, dv, dk = recurrent.shape[3:]
    group, rows = num_heads // keys.shape[1], out.shape[0] // tables.shape[0]
    events = np.empty((MAX_ROWS, 3), np.int32)
    for index in range(tables.shape[0]):
        slot, live = tables[index, SLOT], tables[index, LIVE]
        core = out[index * rows : (index + 1) * rows]
        core[live:] = np.float32(0.0)
        count = _plan(tables[index], events) if live else 0
        mixed, ab = mixed_ring[slot, layer], ab_ring[slot, layer]
        for row in range(live):
            a, b = ab[row, 0], ab[row, 1]
            prepare(mixed[row], a, b, rates, dt_bias, dk, keys[row], gates[row])
        state = recurrent[slot, words[slot, ACTIVE_SET], layer]
        for h in range(num_heads if live else 0):
            load_tile(state[h], tiles[0])
            first = mixed.shape[1] - (num_heads - h) * dv
            for event in range(count):
                row, source, target = events[event, 0], events[event, 1], events[event, 2]
                value, key = mixed[row, first : first + dv], keys[row, h // group]
                tile, after = tiles[source], tiles[max(target, 0)]
                step(tile, after, target >= 0, key, gates[row, h], value, work, core[row, h])


@compiled
def _advance(mixed, stride, nodes, buffers, state, out):
    """Run all heads of one layer along `nodes` of the flat rows `mixed`, prepared in order."""
    keys, gates, tiles, work = buffers
    num_heads, dv, dk = state.shape
    group, tile = num_heads // keys.shape[1], tiles[0]
    for h in range(num_heads):
        load_tile(state[h], tile)
        for row in range(nodes.size):
            first = nodes[row] * stride + 2 * keys.shape[1] * dk + h * dv
            value, core = mixed[first : first + dv], out[row % out.shape[0], h]
            step(tile, tile, True, keys[row, h // group], gates[row, h], value, work, core)
        store_tile(tile, state[h])


@compiled
def _chain(rows, row_stride, ab, ab_stride, params, recurrent, words, layer, runs, out, buffers):
    (rates, dt_bias), (slots, counts), (keys, gates, _, _) = params, runs, buffers
    num_heads, dv, dk = recurrent.shape[3:]
    length, width = out.shape[0] // slots.size, 2 * keys.shape[1] * dk + num_heads * dv
    for index in range(slots.size):
        slot, count, first = slots[index], counts[index], index * length
        for row in range(count):
            at, gate = (first + row) * row_stride, (first + row) * ab_stride
            a, b = ab[gate : gate + num_heads], ab[gate + num_heads : gate + 2 * num_heads]
            mixed = rows[at : at + width]
            prepare(mixed, a, b, rates, dt_bias, dk, keys[row], gates[row])
        nodes = np.arange(first, first + count)
        state = recurrent[slot, words[slot, ACTIVE_SET], layer]
        if count:
            core = out[first : first + count]
            _advance(rows, row_stride, nodes, buffers, state, core)
        out[first + count : first + length] = np.float32(0.0)


@compiled
def _replay(rings, params, recurrent, words, path, slots, buffers):
    (mixed_ring, ab_ring), (rates, dt_bias), (keys, gates, _, _) = rings, params, buffers
    num_heads, dv, dk = recurrent.shape[3:]
    out = np.empty((1, num_heads, dv), np.float32)
    for slot in slots:
        word, own = words[slot], path[slot]
        if word[EPOCH] != own[PATH_EPOCH] or word[CYCLE] != own[PATH_CYCLE]:
            continue
        nodes = own[PATH_NODES : PATH_NODES + own[PATH_NUM_NODES]].astype(np.int64)
        for layer in range(recurrent.shape[2]):
            mixed, ab = mixed_ring[slot, layer], ab_ring[slot, layer]
            for row in range(nodes.size):
                node = nodes[row]
                gate = ab[node, 0], ab[node, 1], rates[layer], dt_bias[layer]
                prepare(mixed[node], *gate, dk, keys[row], gates[row])
            state = recurrent[slot, 1 - word[ACTIVE_SET], layer]
            state[:] = recurrent[slot, word[ACTIVE_SET], layer]
            _advance(mixed.reshape(-1), mixed.shape[1], nodes, buffers, state, out)


def _buffers(rows, channels, heads, dv, dk):
    """Return scratch of this thread: keys, gates, tiles, and the work vectors of a step."""
    lent, num_keys = _scratch.__dict__, (channels - heads * dv) // (2 * dk)
    shape = (rows, num_keys, heads, dv, dk)
    if shape not in lent:
        wide_k, wide_v = -dk % 16 + dk, -dv % 32 + dv
        sizes = (
            (rows, num_keys, 2, wide_k),
            (rows, heads, 3),
            (MAX_ROWS, wide_k, wide_v),
            (2, wide_v),
        )
        lent[shape] = tuple(np.zeros(size, np.float32) for size in sizes)
    return lent[shape]


def _rates(a_log):
    return -np.exp(a_log.detach().numpy().astype(np.float64)).astype(np.float32)


def _params(a_log, dt_bias):
    """Return (-exp(a_log), dt_bias) on the host."""
    return derived(a_log, "host_rates", _rates), host(dt_bias)


def scan(
    mixed_ring, ab_ring, a_log, dt_bias, recurrent, words, layer, tables, out, schedule="one_pass"
):
    """Do what gdn.scan says; the one schedule here is depth first."""
    buffers = _buffers(MAX_ROWS, mixed_ring.shape[3], *recurrent.shape[3:])
    rings, params = (host(mixed_ring), host(ab_ring)), _params(a_log, dt_bias)
    state, block = (host(recurrent), host(words), layer), host(tables.block)
    _scan(rings, params, *state, block, host(out), buffers)


def chain(mixed, ab, a_log, dt_bias, recurrent, words, layer, slots, counts, out):
    """Do what gdn.chain says."""
    buffers = _buffers(mixed.shape[0], mixed.shape[1], *recurrent.shape[3:])
    rows = *host_rows(mixed), *host_rows(ab)
    state, runs = (host(recurrent), host(words), layer), (host(slots), host(counts))
    _chain(*rows, _params(a_log, dt_bias), *state, runs, host(out), buffers)


def replay(mixed_ring, ab_ring, a_log, dt_bias, recurrent, words, path, slots):
    """Do what gdn.replay says."""
    buffers = _buffers(MAX_ROWS, mixed_ring.shape[3], *recurrent.shape[3:])
    rings, params = (host(mixed_ring), host(ab_ring)), _params(a_log, dt_bias)
    _replay(rings, params, host(recurrent), host(words), host(path), host(slots), buffers)
