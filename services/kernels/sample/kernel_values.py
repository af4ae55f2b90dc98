"""Processed values of tree rows in Triton, a tile at a time; nothing is stored."""

import triton
import triton.language as tl

from services.kernels.sample import params as p
from services.kernels.tree_tables import (
    ANCESTORS,
    COMMITTED_LENGTH,
    DEPTHS,
    LIVE,
    SLOT,
    TOKENS,
)

T_ANCESTORS, T_TOKENS, T_DEPTHS = (tl.constexpr(x) for x in (ANCESTORS, TOKENS, DEPTHS))
T_LENGTH, T_LIVE, T_SLOT = (tl.constexpr(x) for x in (COMMITTED_LENGTH, LIVE, SLOT))
P_SCALE, P_TOP_P, P_MARGIN = (tl.constexpr(x) for x in (p.SCALE, p.TOP_P, p.MARGIN))
P_PRESENCE, P_FREQUENCY, P_REPETITION = (
    tl.constexpr(x) for x in (p.PRESENCE, p.FREQUENCY, p.REPETITION)
)
P_INVERSE = tl.constexpr(p.INVERSE_REPETITION)
P_TOP_K, P_FLAGS, P_CHOICE = (tl.constexpr(x) for x in (p.TOP_K, p.FLAGS, p.CHOICE))
P_SEED_LOW, P_SEED_HIGH = (tl.constexpr(x) for x in (p.SEED_LOW, p.SEED_HIGH))
P_MIN_TOKENS, P_NUM_EMITTED = (tl.constexpr(x) for x in (p.MIN_TOKENS, p.NUM_EMITTED))
P_WORDS, P_DOUBLES = tl.constexpr(p.SAMPLING_WORDS), tl.constexpr(p.SAMPLING_WORDS // 2)
IS_GREEDY, HAS_BIAS = tl.constexpr(p.IS_GREEDY), tl.constexpr(p.HAS_BIAS)
HAS_PENALTIES = tl.constexpr(p.HAS_PENALTIES)
IN_PROMPT, IS_END = tl.constexpr(p.IN_PROMPT), tl.constexpr(p.IS_END)
PATH = tl.constexpr(16)
ROWS = tl.constexpr(32)
NO_ID = tl.constexpr(1 << 30)
NEG_INF = tl.constexpr(float("-inf"))
POS_INF = tl.constexpr(float("inf"))


@triton.jit
def open_row(logits, table, node, sampling, singles, marks, counts, bias, vocab):
    """Return what tile_values needs of a row: its pointers, values and path."""
    slot = tl.load(table + T_SLOT).to(tl.int64)
    words, reals = sampling + slot * P_WORDS, singles + slot * P_WORDS
    depth = tl.load(table + T_DEPTHS + node)
    emitted = tl.load(words + P_NUM_EMITTED) + depth
    flags = tl.load(words + P_FLAGS)
    bans_ends = emitted < tl.load(words + P_MIN_TOKENS)
    pointers = (logits, bias + slot * vocab, counts + slot * vocab, marks + slot * vocab)
    penalties = (
        tl.load(reals + P_PRESENCE),
        tl.load(reals + P_FREQUENCY),
        tl.load(reals + P_REPETITION),
        tl.load(reals + P_INVERSE),
    )
    path = (table + T_ANCESTORS + node * PATH, table + T_TOKENS, depth)
    return pointers, penalties, path, flags, bans_ends, vocab


@triton.jit
def tile_values(row, ids):
    """Return the processed values of a tile of ids; -inf past the vocabulary."""
    pointers, penalties, path, flags, bans_ends, vocab = row
    logits, bias, counts, marks = pointers
    presence, frequency, repetition, inverse = penalties
    ancestors, tokens, depth = path
    inside = ids < vocab
    x = tl.load(logits + ids, mask=inside, other=NEG_INF)
    if (flags & HAS_BIAS) != 0:
        x = x + tl.load(bias + ids, mask=inside, other=0.0)
    x = tl.where(x == x, x, NEG_INF)
    if bans_ends:
        mark = tl.load(marks + ids, mask=inside, other=0).to(tl.int32)
        x = tl.where((mark & IS_END) != 0, NEG_INF, x)
    if (flags & HAS_PENALTIES) != 0:
        mark = tl.load(marks + ids, mask=inside, other=0).to(tl.int32)
        count = tl.load(counts + ids, mask=inside, other=0)
        for place in range(1, depth + 1):
            token = tl.load(tokens + tl.load(ancestors + place))
            count += (ids == token).to(tl.int32)
        seen = (count > 0) | ((mark & IN_PROMPT) != 0)
        x = tl.where(seen, x * tl.where(x > 0.0, inverse, repetition), x)
        lowered = (x - frequency * count.to(tl.float32)) - presence
        x = tl.where(count > 0, lowered, x)
    return tl.where(inside, x, NEG_INF)


@triton.jit
def find_top(row, start, end, LANES: tl.constexpr):
    """Return the maximum of ids [start, end), its lowest id, and the maximum of each lane."""
    lanes = tl.arange(0, LANES)
    best, where = tl.full([LANES], NEG_INF, tl.float32), tl.zeros([LANES], tl.int32) + start
    for first in range(start, end, LANES):
        ids = first + lanes
        x = tile_values(row, ids)
        x = tl.where(ids < end, x, NEG_INF)
        where = tl.where(x > best, ids, where)
        best = tl.where(x > best, x, best)
    top = tl.max(best, 0)
    return top, tl.min(tl.where(best == top, where, NO_ID), 0), best
