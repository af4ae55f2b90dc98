"""The walk, the counts and the cut in Triton: one small program a sequence."""

import triton
import triton.language as tl

from services.contract.path import CutReason
from services.kernels import state_words as w
from services.kernels.sample import params as p
from services.kernels.tree_tables import (
    COMMITTED_LENGTH,
    CYCLE,
    FORCED,
    LIVE,
    PARENTS,
    SLOT,
    TOKENS,
)

T_LENGTH, T_CYCLE, T_FORCED = (tl.constexpr(x) for x in (COMMITTED_LENGTH, CYCLE, FORCED))
T_LIVE, T_PARENTS, T_SLOT = (tl.constexpr(x) for x in (LIVE, PARENTS, SLOT))
T_TOKENS = tl.constexpr(TOKENS)
P_WORDS, P_NUM_EMITTED = tl.constexpr(p.SAMPLING_WORDS), tl.constexpr(p.NUM_EMITTED)
P_MAX_TOKENS, P_CONTEXT = tl.constexpr(p.MAX_TOKENS), tl.constexpr(p.CONTEXT_LENGTH)
IS_EOS, IS_STOP = tl.constexpr(p.IS_EOS), tl.constexpr(p.IS_STOP)
W_EPOCH, W_WORDS = tl.constexpr(w.EPOCH), tl.constexpr(16)
EPOCH, WALKED = tl.constexpr(w.PATH_EPOCH), tl.constexpr(w.PATH_CYCLE)
NUM_NODES, NUM_EMITTED = tl.constexpr(w.PATH_NUM_NODES), tl.constexpr(w.PATH_NUM_EMITTED)
PENDING, REASON = tl.constexpr(w.PATH_PENDING), tl.constexpr(w.PATH_CUT_REASON)
INDEX, BEFORE = tl.constexpr(w.PATH_CUT_INDEX), tl.constexpr(w.PATH_EMITTED_BEFORE)
COMMITTED = tl.constexpr(w.PATH_COMMITTED)
NODES, EMITTED = tl.constexpr(w.PATH_NODES), tl.constexpr(w.PATH_EMITTED)
EOS, STOP_ID = tl.constexpr(int(CutReason.EOS)), tl.constexpr(int(CutReason.STOP_ID))
BUDGET, CONTEXT = tl.constexpr(int(CutReason.BUDGET)), tl.constexpr(int(CutReason.CONTEXT))
NOT_CUT = tl.constexpr(int(CutReason.NONE))
PATH, ROWS, PATH_WORDS = tl.constexpr(16), tl.constexpr(32), tl.constexpr(64)


@triton.jit
def next_node(table, node, token):
    """Return the first child of a node that carries the token (any child if forced), else 0."""
    rows = tl.arange(0, ROWS)
    parents, tokens = tl.load(table + T_PARENTS + rows), tl.load(table + T_TOKENS + rows)
    wanted = (tokens == token) | (rows * 0 + tl.load(table + T_FORCED) != 0)
    match = (parents == node) & wanted & (rows > node) & (rows < tl.load(table + T_LIVE))
    child = tl.min(tl.where(match, rows, ROWS), 0)
    return tl.where(child < ROWS, child, 0)


@triton.jit
def walk_kernel(tables, table_stride, drawn, slot_words, sampling, path):
    """Follow the drawn tokens from the root and write the path."""
    tree = tl.program_id(0).to(tl.int64)
    table = tables + tree * table_stride
    if tl.load(table + T_LIVE) > 0:
        slot = tl.load(table + T_SLOT).to(tl.int64)
        lanes = tl.arange(0, PATH)
        nodes, emitted = tl.full([PATH], -1, tl.int32), tl.full([PATH], -1, tl.int32)
        node, count = tl.full([], 0, tl.int32), tl.full([], 0, tl.int32)
        walks, pending = tl.full([], 1, tl.int32), tl.full([], 0, tl.int32)
        for step in range(PATH):
            if walks != 0:
                token = tl.load(drawn + tree * ROWS + node)
                child = next_node(table, node, token)
                if child > 0:
                    token = tl.load(table + T_TOKENS + child)
                nodes = tl.where(lanes == step, node, nodes)
                emitted = tl.where(lanes == step, token, emitted)
                pending = token
                count += 1
                walks = (child > 0).to(tl.int32)
                node = child
        row = path + slot * PATH_WORDS
        tl.store(row + NODES + lanes, nodes)
        tl.store(row + EMITTED + lanes, emitted)
        tl.store(row + EPOCH, tl.load(slot_words + slot * W_WORDS + W_EPOCH))
        tl.store(row + WALKED, tl.load(table + T_CYCLE))
        tl.store(row + NUM_NODES, count)
        tl.store(row + NUM_EMITTED, count)
        tl.store(row + PENDING, pending)
        tl.store(row + REASON, NOT_CUT)
        tl.store(row + INDEX, -1)
        tl.store(row + BEFORE, tl.load(sampling + slot * P_WORDS + P_NUM_EMITTED))
        tl.store(row + COMMITTED, tl.load(table + T_LENGTH) + count)


@triton.jit
def count_kernel(tables, table_stride, path, sampling, counts, vocab):
    """Add the emitted tokens to the slot's counts, once the log-probabilities are written."""
    table = tables + tl.program_id(0).to(tl.int64) * table_stride
    if tl.load(table + T_LIVE) > 0:
        slot = tl.load(table + T_SLOT).to(tl.int64)
        row, lanes = path + slot * PATH_WORDS, tl.arange(0, PATH)
        count = tl.load(row + NUM_EMITTED)
        tokens = tl.load(row + EMITTED + lanes)
        tl.atomic_add(counts + slot * vocab + tokens, 1, mask=lanes < count)
        total = tl.load(row + BEFORE) + count
        tl.store(sampling + slot * P_WORDS + P_NUM_EMITTED, total)


@triton.jit
def accept_kernel(path, sampling, marks, slots, out, vocab):
    """Copy one path and cut it at the first token that ends its sequence."""
    slot = tl.load(slots + tl.program_id(0)).to(tl.int64)
    row, words = path + slot * PATH_WORDS, sampling + slot * P_WORDS
    lanes = tl.arange(0, PATH)
    tokens = tl.load(row + EMITTED + lanes)
    inside = (tokens >= 0) & (tokens < vocab)
    mark = tl.load(marks + slot * vocab + tokens, mask=inside, other=0).to(tl.int32)
    start = tl.load(row + COMMITTED) - tl.load(row + NUM_NODES)
    reason = tl.where(start + lanes + 2 >= tl.load(words + P_CONTEXT), CONTEXT, NOT_CUT)
    total = tl.load(row + BEFORE) + lanes + 1
    reason = tl.where(total >= tl.load(words + P_MAX_TOKENS), BUDGET, reason)
    reason = tl.where((mark & IS_STOP) != 0, STOP_ID, reason)
    reason = tl.where((mark & IS_EOS) != 0, EOS, reason)
    ends = (reason != NOT_CUT) & (lanes < tl.load(row + NUM_EMITTED))
    first = tl.min(tl.where(ends, lanes, PATH), 0)
    places = tl.arange(0, PATH_WORDS)
    words_out = tl.load(row + places)
    if first < PATH:
        kept = first + 1
        last = tl.sum(tl.where(lanes == first, tokens, 0), 0)
        why = tl.sum(tl.where(lanes == first, reason, 0), 0)
        words_out = tl.where((places == NUM_NODES) | (places == NUM_EMITTED), kept, words_out)
        words_out = tl.where(places == PENDING, last, words_out)
        words_out = tl.where(places == REASON, why, words_out)
        words_out = tl.where(places == INDEX, first, words_out)
        words_out = tl.where(places == COMMITTED, start + kept, words_out)
        dropped = (places >= kept + NODES) & (places < EMITTED)
        dropped = dropped | ((places >= kept + EMITTED) & (places < EMITTED + PATH))
        words_out = tl.where(dropped, -1, words_out)
    tl.store(out + slot * PATH_WORDS + places, words_out)
