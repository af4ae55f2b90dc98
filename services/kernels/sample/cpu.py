"""The sampler in numba: only rows on the walk are processed, one pass a filter."""

import math

import numpy as np

from services.contract.limits import MAX_PATH, MIN_LOGPROB
from services.contract.path import CutReason
from services.kernels import fixed
from services.kernels.fixed.cpu import pick, random_word, total_weight
from services.kernels.jit.cpu import compiled
from services.kernels.sample import params as p
from services.kernels.select.cpu import NEG_INF, largest, plain_weights, rank, survivors
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

NOT_CUT = int(CutReason.NONE)
EOS, STOP_ID = int(CutReason.EOS), int(CutReason.STOP_ID)
BUDGET, CONTEXT = int(CutReason.BUDGET), int(CutReason.CONTEXT)
ZERO = np.float32(0.0)


@compiled
def process(row, bias, counts, marks, singles, flags, bans_ends, out):
    """Write the processed row to `out` and return it; return the row itself if nothing is on."""
    has_bias, has_penalties = flags & p.HAS_BIAS != 0, flags & p.HAS_PENALTIES != 0
    if not (has_bias or has_penalties or bans_ends):
        return row
    presence, frequency = singles[p.PRESENCE], singles[p.FREQUENCY]
    repetition, inverse = singles[p.REPETITION], singles[p.INVERSE_REPETITION]
    for v in range(row.shape[0]):
        x = row[v]
        if has_bias:
            x = x + bias[v]
        if bans_ends and marks[v] & p.IS_END:
            x = NEG_INF
        if has_penalties:
            count = counts[v]
            if count > 0 or marks[v] & p.IN_PROMPT:
                x = x * (inverse if x > ZERO else repetition)
            if count > 0:
                x = (x - frequency * np.float32(count)) - presence
        out[v] = x
    return out


@compiled
def _survivors(values, best, doubles, top_k, scratch):
    margin, scale, top_p = doubles[p.MARGIN], doubles[p.SCALE], doubles[p.TOP_P]
    return survivors(values, best, margin, scale, top_k, top_p, scratch)


@compiled
def draw_row(values, doubles, words, random_words, scratch, out):
    """Write the token of a processed row for each random word."""
    best, index = largest(values)
    if words[p.FLAGS] & p.IS_GREEDY or not math.isfinite(best):
        out[:] = index
        return
    size = _survivors(values, best, doubles, words[p.TOP_K], scratch)
    total = total_weight(scratch.weights, size)
    for i in range(random_words.shape[0]):
        out[i] = pick(scratch.ids, scratch.weights, size, total, random_words[i])


@compiled
def write_logprobs(row, values, doubles, words, token, scratch, out_ids, out):
    """Write the chosen token's and the row's best tokens' log-probabilities."""
    count = words[p.NUM_LOGPROBS]
    processed = words[p.FLAGS] & p.IS_PROCESSED != 0
    plain = not processed or words[p.FLAGS] & p.IS_GREEDY != 0
    shown = values if processed else row
    best, _ = largest(shown)
    scale = 1.0 if plain else doubles[p.SCALE]
    ids, weights, size = scratch.ids, scratch.weights, 0
    if math.isfinite(best) and plain:
        size = plain_weights(shown, best, scratch)
    elif math.isfinite(best):
        size = _survivors(shown, best, doubles, words[p.TOP_K], scratch)
    total = total_weight(weights, size)
    log_total = math.log(np.float64(total) / fixed.WEIGHT_ONE) if total > 0 else 0.0
    out_ids[0] = token
    rank(shown, True, out[1 : count + 1], out_ids[1 : count + 1])
    for place in range(count + 1):
        v = out_ids[place]
        found = np.searchsorted(ids[:size], v)
        keep = found < size and ids[found] == v and (plain or weights[found] > 0)
        value = (np.float64(shown[v]) - np.float64(best)) * scale - log_total
        out[place] = np.float32(max(value, MIN_LOGPROB)) if keep else np.float32(MIN_LOGPROB)


@compiled
def _row_word(table, words, depth):
    position = table[COMMITTED_LENGTH] + depth + 1
    return random_word(words[p.SEED_LOW], words[p.SEED_HIGH], words[p.CHOICE], position)


@compiled
def _processed(row, s, slots, depth, scratch):
    words = slots.words[s]
    bans_ends = words[p.NUM_EMITTED] + depth < words[p.MIN_TOKENS]
    return process(
        row, slots.bias[s], slots.counts[s], slots.marks[s], slots.singles[s], words[p.FLAGS],
        bans_ends, scratch.values,
    )  # fmt: skip


@compiled
def _next_node(table, node, token):
    for i in range(node + 1, table[LIVE]):
        if table[PARENTS + i] == node and (table[FORCED] or table[TOKENS + i] == token):
            return i
    return 0


@compiled
def _walk_one(logits, table, slots, scratch):
    s = table[SLOT]
    words, doubles, path = slots.words[s], slots.doubles[s], slots.path[s]
    random_words, drawn = np.empty(1, np.uint64), np.empty(1, np.int32)
    node, depth, ends = 0, 0, False
    while not ends:
        values = _processed(logits[node], s, slots, depth, scratch)
        random_words[0] = _row_word(table, words, depth)
        draw_row(values, doubles, words, random_words, scratch, drawn)
        child = _next_node(table, node, drawn[0])
        token = table[TOKENS + child] if child else drawn[0]
        if words[p.NUM_LOGPROBS] >= 0:
            write_logprobs(logits[node], values, doubles, words, token, scratch,
                           slots.logprob_ids[s, depth], slots.logprobs[s, depth])  # fmt: skip
        path[PATH_NODES + depth] = node
        path[PATH_EMITTED + depth] = token
        slots.counts[s, token] += 1
        depth += 1
        node, ends = child, child == 0
    _close_path(table, slots.slot_words[s], path, words, depth)


@compiled
def _close_path(table, slot_words, path, words, count):
    path[PATH_EPOCH] = slot_words[EPOCH]
    path[PATH_CYCLE] = table[CYCLE]
    path[PATH_NUM_NODES] = path[PATH_NUM_EMITTED] = count
    path[PATH_PENDING] = path[PATH_EMITTED + count - 1]
    path[PATH_CUT_REASON] = NOT_CUT
    path[PATH_CUT_INDEX] = -1
    path[PATH_EMITTED_BEFORE] = words[p.NUM_EMITTED]
    path[PATH_COMMITTED] = table[COMMITTED_LENGTH] + count
    path[PATH_NODES + count : PATH_NODES + MAX_PATH] = -1
    path[PATH_EMITTED + count : PATH_EMITTED + MAX_PATH] = -1
    words[p.NUM_EMITTED] += count


@compiled
def _walk(logits, tables, slots, scratch):
    for b in range(tables.shape[0]):
        if tables[b, LIVE] > 0:
            _walk_one(logits[b], tables[b], slots, scratch)


@compiled
def _add_path(table, node, counts, amount):
    first = ANCESTORS + node * MAX_PATH + 1
    for place in range(first, first + table[DEPTHS + node]):
        counts[table[TOKENS + table[place]]] += amount


@compiled
def _draw(logits, tables, slots, given, scratch, out):
    random_words = np.empty(1, np.uint64)
    for b in range(tables.shape[0]):
        s, table = tables[b, SLOT], tables[b]
        for node in range(table[LIVE]):
            depth = table[DEPTHS + node]
            _add_path(table, node, slots.counts[s], 1)
            values = _processed(logits[b, node], s, slots, depth, scratch)
            random_words[0] = _row_word(table, slots.words[s], depth)
            if given.shape[0]:
                random_words[0] = np.uint64(given[b, node])
            draw_row(values, slots.doubles[s], slots.words[s], random_words, scratch,
                     out[b, node : node + 1])  # fmt: skip
            _add_path(table, node, slots.counts[s], -1)


@compiled
def _draw_many(row, table, node, slots, random_words, scratch, out):
    s = table[SLOT]
    _add_path(table, node, slots.counts[s], 1)
    values = _processed(row, s, slots, table[DEPTHS + node], scratch)
    draw_row(values, slots.doubles[s], slots.words[s], random_words, scratch, out)
    _add_path(table, node, slots.counts[s], -1)


@compiled
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


@compiled
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
    slots, scratch = state.host
    given = _NO_WORDS if random_words is None else random_words.numpy()
    _draw(logits.numpy(), tables.block.numpy(), slots, given, scratch, out.numpy())


def draw_many(logits, tables, state, node, random_words, out):
    """Write the token of one row [V] of the first tree for each of many random words."""
    slots, scratch = state.host
    table = tables.block[0].numpy()
    _draw_many(logits.numpy(), table, node, slots, random_words, scratch, out)


def walk(logits, tables, state):
    """Do what sample.walk says."""
    slots, scratch = state.host
    _walk(logits.numpy(), tables.block.numpy(), slots, scratch)


def accept(path, sampling, prompt_mask, slots, out):
    """Do what sample.accept says."""
    _accept(path.numpy(), sampling.numpy(), prompt_mask.numpy(), slots.numpy(), out.numpy())
