"""The sampler in numba: only rows on the walk are processed, one pass a filter."""

import math

import numpy as np
from numba import njit

from services.contract.path import CutReason
from services.kernels import fixed
from services.kernels.fixed.cpu import pick, random_word, total_weight, weight
from services.kernels.sample import params as p
from services.kernels.select.cpu import NEG_INF, kth_value, largest, rank, threshold, write_keys
from services.kernels.state_words import (
    EPOCH,
    PATH_COMMITTED,
    PATH_CUT_INDEX,
    PATH_CUT_REASON,
    PATH_CYCLE,
    PATH_EMITTED,
    PATH_EMITTED_BEFORE,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_EMITTED,
    PATH_NUM_NODES,
    PATH_PENDING,
)
from services.kernels.tree_tables import (
    ANCESTORS,
    COMMITTED_LENGTH,
    CYCLE,
    DEPTHS,
    FORCED,
    LIVE,
    PARENTS,
    SLOT,
    TOKENS,
)

MAX_PATH = 16
NOT_CUT = int(CutReason.NONE)
EOS, STOP_ID = int(CutReason.EOS), int(CutReason.STOP_ID)
BUDGET, CONTEXT = int(CutReason.BUDGET), int(CutReason.CONTEXT)
ZERO = np.float32(0.0)
_jit = njit(cache=True, nogil=True, error_model="numpy")


@_jit
def process(row, bias, counts, marks, singles, flags, bans_ends, out):
    """Write the processed row to `out` and return it; return the row itself if nothing is on."""
    has_bias, has_penalties = flags & p.HAS_BIAS != 0, flags & p.HAS_PENALTIES != 0
    if not (has_bias or has_penalties or bans_ends):
        return row
    presence, frequency = singles[p.PRESENCE], singles[p.FREQUENCY]
    repetition = singles[p.REPETITION]
    for v in range(row.shape[0]):
        x = row[v]
        if has_bias:
            x = x + bias[v]
        if bans_ends and marks[v] & p.IS_END:
            x = NEG_INF
        if has_penalties:
            count = counts[v]
            if count > 0 or marks[v] & p.IN_PROMPT:
                x = x / repetition if x > ZERO else x * repetition
            if count > 0:
                x = (x - frequency * np.float32(count)) - presence
        out[v] = x
    return out


@_jit
def survivors(values, best, doubles, top_k, ids, keys, weights):
    """Write ids (ascending) and weights of what the filters leave; return their number."""
    floor = np.float64(best) - doubles[p.MARGIN]
    if 0 < top_k < values.shape[0]:
        floor = max(floor, np.float64(kth_value(values, top_k, ids, keys, weights)))
    size = 0
    for v in range(values.shape[0]):
        if np.float64(values[v]) >= floor and values[v] > NEG_INF:
            ids[size] = v
            size += 1
    temperature, top = doubles[p.TEMPERATURE], np.float64(best)
    total = np.int64(0)
    for i in range(size):
        weights[i] = weight((np.float64(values[ids[i]]) - top) / temperature)
        total += weights[i]
    if doubles[p.TOP_P] < 1.0:
        write_keys(values, ids, size, keys)
        return nucleus(doubles[p.TOP_P] * np.float64(total), size, ids, keys, weights)
    return size


@_jit
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


@_jit
def draw_row(values, doubles, words, word, ids, keys, weights):
    """Return the token of a processed row."""
    best, index = largest(values)
    if words[p.FLAGS] & p.IS_GREEDY or best == NEG_INF:
        return np.int32(index)
    size = survivors(values, best, doubles, words[p.TOP_K], ids, keys, weights)
    return pick(ids, weights, size, total_weight(weights, size), word)


@_jit
def write_logprobs(row, values, doubles, words, token, ids, keys, weights, out_ids, out):
    """Write the chosen token's and the row's best tokens' log-probabilities."""
    count = words[p.NUM_LOGPROBS]
    processed = words[p.FLAGS] & p.IS_PROCESSED != 0
    shown = values if processed else row
    best, _ = largest(shown)
    plain = not processed or words[p.FLAGS] & p.IS_GREEDY != 0
    temperature = 1.0 if plain else doubles[p.TEMPERATURE]
    total, size = np.int64(0), 0
    if best > NEG_INF and not plain:
        size = survivors(shown, best, doubles, words[p.TOP_K], ids, keys, weights)
        total = total_weight(weights, size)
    elif best > NEG_INF:
        for v in range(shown.shape[0]):
            if shown[v] == shown[v]:
                total += weight(np.float64(shown[v]) - np.float64(best))
    log_total = math.log(np.float64(total) / fixed.WEIGHT_ONE) if total > 0 else 0.0
    out_ids[0] = token
    rank(shown, True, out[1 : count + 1], out_ids[1 : count + 1])
    for place in range(count + 1):
        v = out_ids[place]
        keep = shown[v] > NEG_INF
        if not plain:
            found = np.searchsorted(ids[:size], v)
            keep = found < size and ids[found] == v and weights[found] > 0
        value = (np.float64(shown[v]) - np.float64(best)) / temperature - log_total
        out[place] = np.float32(max(value, -9999.0)) if keep else np.float32(-9999.0)


@_jit
def _row_word(table, words, depth):
    position = table[COMMITTED_LENGTH] + depth + 1
    return random_word(words[p.SEED_LOW], words[p.SEED_HIGH], words[p.CHOICE], position)


@_jit
def _walk_one(logits, table, slot_words, path, words, doubles, singles, marks, counts, bias,
              logprob_ids, logprobs, x, ids, keys, weights):  # fmt: skip
    node, depth = 0, 0
    while True:
        row = logits[node]
        bans_ends = words[p.NUM_EMITTED] + depth < words[p.MIN_TOKENS]
        values = process(row, bias, counts, marks, singles, words[p.FLAGS], bans_ends, x)
        word = _row_word(table, words, depth)
        token = draw_row(values, doubles, words, word, ids, keys, weights)
        child = 0
        for i in range(table[LIVE] - 1, 0, -1):
            if table[PARENTS + i] == node and (table[FORCED] or table[TOKENS + i] == token):
                child = i
        token = table[TOKENS + child] if child else token
        if words[p.NUM_LOGPROBS] >= 0:
            write_logprobs(row, values, doubles, words, token, ids, keys, weights,
                           logprob_ids[depth], logprobs[depth])  # fmt: skip
        path[PATH_NODES + depth] = node
        path[PATH_EMITTED + depth] = token
        counts[token] += 1
        depth += 1
        if child == 0:
            break
        node = child
    _close_path(table, slot_words, path, words, depth)


@_jit
def _close_path(table, slot_words, path, words, count):
    path[PATH_EPOCH] = slot_words[EPOCH]
    path[PATH_CYCLE] = table[CYCLE]
    path[PATH_NUM_NODES] = path[PATH_NUM_EMITTED] = count
    path[PATH_PENDING] = path[PATH_EMITTED + count - 1]
    path[PATH_CUT_REASON] = NOT_CUT
    path[PATH_CUT_INDEX] = -1
    path[PATH_EMITTED_BEFORE] = words[p.NUM_EMITTED]
    path[PATH_COMMITTED] = table[COMMITTED_LENGTH] + count
    for place in range(count, MAX_PATH):
        path[PATH_NODES + place] = -1
        path[PATH_EMITTED + place] = -1
    words[p.NUM_EMITTED] += count


@_jit
def _walk(logits, tables, slot_words, path, words, doubles, singles, marks, counts, bias,
          logprob_ids, logprobs, x, ids, keys, weights):  # fmt: skip
    for b in range(tables.shape[0]):
        s = tables[b, SLOT]
        if tables[b, LIVE] > 0:
            _walk_one(logits[b], tables[b], slot_words[s], path[s], words[s], doubles[s],
                      singles[s], marks[s], counts[s], bias[s], logprob_ids[s], logprobs[s],
                      x, ids, keys, weights)  # fmt: skip


@_jit
def _draw(logits, tables, words, doubles, singles, marks, counts, bias, given, x, ids, keys,
          weights, out):  # fmt: skip
    for b in range(tables.shape[0]):
        s, table = tables[b, SLOT], tables[b]
        for node in range(table[LIVE]):
            depth = table[DEPTHS + node]
            first = ANCESTORS + node * MAX_PATH + 1
            for place in range(first, first + depth):
                counts[s, table[TOKENS + table[place]]] += 1
            bans_ends = words[s, p.NUM_EMITTED] + depth < words[s, p.MIN_TOKENS]
            values = process(logits[b, node], bias[s], counts[s], marks[s], singles[s],
                             words[s, p.FLAGS], bans_ends, x)  # fmt: skip
            word = _row_word(table, words[s], depth)
            if given.shape[0]:
                word = np.uint64(given[b, node])
            out[b, node] = draw_row(values, doubles[s], words[s], word, ids, keys, weights)
            for place in range(first, first + depth):
                counts[s, table[TOKENS + table[place]]] -= 1


@_jit
def draw_many(values, doubles, words, random_words, ids, keys, weights, out):
    """Write the token of one processed row for each random word."""
    best, index = largest(values)
    if words[p.FLAGS] & p.IS_GREEDY or best == NEG_INF:
        out[:] = index
        return
    size = survivors(values, best, doubles, words[p.TOP_K], ids, keys, weights)
    total = total_weight(weights, size)
    for i in range(random_words.shape[0]):
        out[i] = pick(ids, weights, size, total, random_words[i])


@_jit
def _cut_reason(path, index, words, marks):
    token = path[PATH_EMITTED + index]
    mark = marks[token] if 0 <= token < marks.shape[0] else 0
    length = path[PATH_COMMITTED] - path[PATH_NUM_NODES] + index + 1
    if mark & p.IS_EOS:
        return EOS
    if mark & p.IS_STOP:
        return STOP_ID
    if path[PATH_EMITTED_BEFORE] + index + 1 >= words[p.MAX_TOKENS]:
        return BUDGET
    return CONTEXT if length + 1 >= words[p.CONTEXT_LENGTH] else NOT_CUT


@_jit
def _accept(path, words, marks, slots, out):
    for s in slots:
        out[s] = path[s]
        for index in range(min(path[s, PATH_NUM_EMITTED], MAX_PATH)):
            reason = _cut_reason(path[s], index, words[s], marks[s])
            if reason != NOT_CUT:
                out[s, PATH_COMMITTED] += index + 1 - out[s, PATH_NUM_NODES]
                out[s, PATH_NUM_NODES] = out[s, PATH_NUM_EMITTED] = index + 1
                out[s, PATH_PENDING] = out[s, PATH_EMITTED + index]
                out[s, PATH_CUT_REASON], out[s, PATH_CUT_INDEX] = reason, index
                out[s, PATH_NODES + index + 1 : PATH_EMITTED] = -1
                out[s, PATH_EMITTED + index + 1 : PATH_EMITTED + MAX_PATH] = -1
                break


_NO_WORDS = np.empty((0, 0), np.int64)


def draw(logits, tables, state, out, random_words=None):
    """Do what sample.draw says."""
    a = state.arrays
    given = _NO_WORDS if random_words is None else random_words.numpy()
    _draw(logits.numpy(), tables.block.numpy(), a.sampling, a.doubles, a.singles, a.marks,
          a.counts, a.bias, given, a.values, a.ids, a.keys, a.weights, out.numpy())  # fmt: skip


def walk(logits, tables, state):
    """Do what sample.walk says."""
    a = state.arrays
    _walk(logits.numpy(), tables.block.numpy(), a.words, a.path, a.sampling, a.doubles, a.singles,
          a.marks, a.counts, a.bias, a.logprob_ids, a.logprob_values, a.values, a.ids, a.keys,
          a.weights)  # fmt: skip


def accept(path, sampling, prompt_mask, slots, out):
    """Do what sample.accept says."""
    _accept(path.numpy(), sampling.numpy(), prompt_mask.numpy(), slots.numpy(), out.numpy())
