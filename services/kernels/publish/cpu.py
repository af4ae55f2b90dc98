"""The publication moves on the CPU."""

from services.contract.limits import PAGE
from services.kernels.jit.cpu import compiled
from services.kernels.numeric.cpu import host
from services.kernels.state_words import (
    ACTIVE_SET,
    CYCLE,
    EPOCH,
    LENGTH,
    PATH_CYCLE,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_NODES,
)


@compiled
def _count(words, path):
    """Return the path's node count, or 0 if it belongs to another epoch or cycle."""
    same_epoch = words[EPOCH] == path[PATH_EPOCH]
    return path[PATH_NUM_NODES] if same_epoch and words[CYCLE] == path[PATH_CYCLE] else 0


@compiled
def _conv_gather(raw_ring, conv, words, path, slots):
    for slot in slots:
        count, active = _count(words[slot], path[slot]), words[slot, ACTIVE_SET]
        if count == 0:
            continue
        for layer in range(conv.shape[2]):
            old, new = conv[slot, active, layer], conv[slot, 1 - active, layer]
            for tap in range(3):
                index = count - 3 + tap
                if index < 0:
                    new[tap] = old[3 + index]
                else:
                    new[tap] = raw_ring[slot, layer, path[slot, PATH_NODES + index]]


@compiled
def _kv_scatter(kv_ring, kv, page_table, words, path, slots):
    for slot in slots:
        for index in range(_count(words[slot], path[slot])):
            position = words[slot, LENGTH] + index
            node = path[slot, PATH_NODES + index]
            page, row = page_table[slot, position // PAGE], position % PAGE
            for layer in range(kv.shape[0]):
                for plane in range(2):
                    for head in range(kv.shape[3]):
                        kv[layer, page, plane, head, row] = kv_ring[slot, layer, plane, head, node]


@compiled
def _flip(words, path, slots):
    for slot in slots:
        count = _count(words[slot], path[slot])
        if count:
            words[slot, ACTIVE_SET] = 1 - words[slot, ACTIVE_SET]
            words[slot, LENGTH] += count
            words[slot, CYCLE] += 1


def conv_gather(raw_ring, conv, words, path, slots):
    """Do what publish.conv_gather says."""
    _conv_gather(host(raw_ring), host(conv), host(words), host(path), host(slots))


def kv_scatter(kv_ring, kv, page_table, words, path, slots):
    """Do what publish.kv_scatter says."""
    _kv_scatter(host(kv_ring), host(kv), host(page_table), host(words), host(path), host(slots))


def flip(words, path, slots):
    """Do what publish.flip says."""
    _flip(host(words), host(path), host(slots))
