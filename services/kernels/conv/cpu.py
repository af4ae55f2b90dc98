"""The convolution on the CPU: a window is four row addresses, taps run over channels."""

from threading import local

import numpy as np

from services.contract.limits import MAX_PATH
from services.kernels.jit.cpu import compiled
from services.kernels.numeric.cpu import derived, host, host_rows, silu32
from services.kernels.state_words import ACTIVE_SET
from services.kernels.tree_tables import ANCESTORS, DEPTHS, LIVE, SLOT

_scratch = local()


@compiled
def _taps(x0, x1, x2, x3, taps, out):
    w0, w1, w2, w3 = taps[0], taps[1], taps[2], taps[3]
    for c in range(out.size):
        total = ((x0[c] * w0[c] + x1[c] * w1[c]) + x2[c] * w2[c]) + x3[c] * w3[c]
        out[c] = silu32(total)


@compiled
def _tree(
    raw,
    stride,
    ab,
    ab_stride,
    conv,
    words,
    layer,
    tables,
    taps,
    rows,
    raw_ring,
    mixed_ring,
    ab_ring,
):
    channels, num_gates = raw_ring.shape[3], ab_ring.shape[3] * ab_ring.shape[4]
    for index in range(tables.shape[0]):
        slot, live = tables[index, SLOT], tables[index, LIVE]
        state = conv[slot, words[slot, ACTIVE_SET], layer]
        kept = raw_ring[slot, layer]
        gates = ab_ring[slot, layer].reshape(-1)
        for node in range(live):
            row = index * rows + node
            kept[node] = raw[row * stride : row * stride + channels]
            first = row * ab_stride
            gates[node * num_gates : (node + 1) * num_gates] = ab[first : first + num_gates]
        for node in range(live):
            depth = tables[index, DEPTHS + node]
            path = tables[index, ANCESTORS + node * MAX_PATH : ANCESTORS + (node + 1) * MAX_PATH]
            x0 = kept[path[depth - 3]] if depth > 2 else state[depth]
            x1 = kept[path[depth - 2]] if depth > 1 else state[depth + 1]
            x2 = kept[path[depth - 1]] if depth > 0 else state[depth + 2]
            _taps(x0, x1, x2, kept[node], taps, mixed_ring[slot, layer, node])


@compiled
def _chain(raw, stride, conv, words, layer, slots, counts, taps, out, before):
    channels = out.shape[1]
    length = out.shape[0] // slots.size
    for index in range(slots.size):
        slot, count, first = slots[index], counts[index], index * length
        state = conv[slot, words[slot, ACTIVE_SET], layer]
        before[:3] = state
        for row in range(min(count, 3)):
            at = (first + row) * stride
            before[3 + row] = raw[at : at + channels]
        for row in range(count):
            at = (first + row) * stride
            x0 = raw[at - 3 * stride : at - 3 * stride + channels] if row > 2 else before[row]
            x1 = raw[at - 2 * stride : at - 2 * stride + channels] if row > 1 else before[row + 1]
            x2 = raw[at - stride : at - stride + channels] if row > 0 else before[row + 2]
            _taps(x0, x1, x2, raw[at : at + channels], taps, out[first + row])
        for tap in range(3):
            row = count - 3 + tap
            at = (first + row) * stride
            if row < 0:
                state[tap] = before[count + tap]
            else:
                state[tap] = raw[at : at + channels]
        out[first + count : first + length] = np.float32(0.0)


def _turned(weight):
    return np.ascontiguousarray(weight.detach().numpy().T)


def _taps_of(weight):
    return derived(weight, "host_taps", _turned)


def conv_tree(raw, ab, conv, words, layer, tables, weight, raw_ring, mixed_ring, ab_ring):
    """Do what conv.conv_tree says."""
    rows = raw.shape[0] // tables.block.shape[0]
    _tree(
        *host_rows(raw),
        *host_rows(ab),
        host(conv),
        host(words),
        layer,
        host(tables.block),
        _taps_of(weight),
        rows,
        host(raw_ring),
        host(mixed_ring),
        host(ab_ring),
    )


def conv_chain(raw, conv, words, layer, slots, counts, weight, out):
    """Do what conv.conv_chain says."""
    buffers, channels = _scratch.__dict__, raw.shape[1]
    if channels not in buffers:
        buffers[channels] = np.zeros((6, channels), np.float32)
    _chain(
        *host_rows(raw),
        host(conv),
        host(words),
        layer,
        host(slots),
        host(counts),
        _taps_of(weight),
        host(out),
        buffers[channels],
    )
