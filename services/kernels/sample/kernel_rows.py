"""The draw of every live row in Triton: one program a row, the vocabulary in tiles.

Pass 1 finds the maximum. Pass 2 collects the survivors of a lower bound in ascending id. The
filters and the draw then run on that list; if it overflows, the same code runs on the whole
vocabulary. Weights are integers, so both give the same token.
"""

import triton
import triton.language as tl

from services.kernels.fixed.kernel_fixed import (
    HIGH_KEY,
    LOW_KEY,
    random_word,
    sort_key,
    target_weight,
    weight,
)
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
P_TEMPERATURE, P_TOP_P, P_MARGIN = (
    tl.constexpr(x) for x in (p.TEMPERATURE, p.TOP_P, p.MARGIN)
)
P_PRESENCE, P_FREQUENCY, P_REPETITION = (
    tl.constexpr(x) for x in (p.PRESENCE, p.FREQUENCY, p.REPETITION)
)
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
    )
    path = (table + T_ANCESTORS + node * PATH, table + T_TOKENS, depth)
    return pointers, penalties, path, flags, bans_ends, vocab


@triton.jit
def tile_values(row, ids):
    """Return the processed values of a tile of ids; -inf past the vocabulary."""
    pointers, penalties, path, flags, bans_ends, vocab = row
    logits, bias, counts, marks = pointers
    presence, frequency, repetition = penalties
    ancestors, tokens, depth = path
    inside = ids < vocab
    x = tl.load(logits + ids, mask=inside, other=NEG_INF)
    x = tl.where(x == x, x, NEG_INF)
    if (flags & HAS_BIAS) != 0:
        x = x + tl.load(bias + ids, mask=inside, other=0.0)
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
        scaled = tl.where(x > 0.0, tl.div_rn(x, ids * 0.0 + repetition), x * repetition)
        x = tl.where(seen, scaled, x)
        lowered = (x - frequency * count.to(tl.float32)) - presence
        x = tl.where(count > 0, lowered, x)
    return tl.where(inside, x, NEG_INF)


@triton.jit
def find_top(row, TILE: tl.constexpr):
    """Return the row's maximum, its lowest id, and the maximum of each lane."""
    lanes = tl.arange(0, TILE)
    best, where = tl.full([TILE], NEG_INF, tl.float32), tl.zeros([TILE], tl.int32)
    for start in range(0, row[5], TILE):
        ids = start + lanes
        x = tile_values(row, ids)
        where = tl.where(x > best, ids, where)
        best = tl.where(x > best, x, best)
    top = tl.max(best, 0)
    return top, tl.min(tl.where(best == top, where, NO_ID), 0), best


@triton.jit
def kth_key(keys, k):
    """Return the k-th largest of a tile of keys."""
    low = tl.full([], LOW_KEY, tl.int64)
    high = tl.full([], HIGH_KEY, tl.int64) + 1
    for _ in range(32):
        middle = (low + high) >> 1
        enough = tl.sum((keys >= middle).to(tl.int32), 0) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return low


@triton.jit
def collect(row, top, floor, temperature, bound, weighs, values_out, ids_out, TILE: tl.constexpr,
            LIST: tl.constexpr):  # fmt: skip
    """Write survivors of floor and bound to the list; return their number, all weight."""
    lanes = tl.arange(0, TILE)
    size = tl.full([], 0, tl.int32)
    total = tl.full([], 0, tl.int64)
    for start in range(0, row[5], TILE):
        ids = start + lanes
        x = tile_values(row, ids)
        wide = x.to(tl.float64)
        keep = (wide >= floor) & (x > NEG_INF)
        if weighs:
            total += tl.sum(tl.where(keep, weight((wide - top) / temperature), 0), 0)
        chosen = (keep & (sort_key(x) >= bound)).to(tl.int32)
        place = size + tl.cumsum(chosen, 0) - chosen
        mask = (chosen > 0) & (place < LIST)
        tl.store(values_out + place, x, mask=mask)
        tl.store(ids_out + place, ids, mask=mask)
        size += tl.sum(chosen, 0)
    tl.debug_barrier()
    return size, total


@triton.jit
def load_tile(row, survivors, start, size, top, floor, temperature, cut, LISTED: tl.constexpr,
              TILE: tl.constexpr):  # fmt: skip
    """Return ids, keys and weights of a tile of candidates; weight 0 for what is cut."""
    offsets = start + tl.arange(0, TILE)
    if LISTED:
        inside = offsets < size
        x = tl.load(survivors[0] + offsets, mask=inside, other=NEG_INF)
        ids = tl.load(survivors[1] + offsets, mask=inside, other=NO_ID)
    else:
        x = tile_values(row, offsets)
        ids = offsets
    wide, keys = x.to(tl.float64), sort_key(x)
    keep = (wide >= floor) & (x > NEG_INF) & (keys >= cut)
    weights = tl.where(keep, weight((wide - top) / temperature), 0)
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
            count += tl.sum(((keys >= middle) & (ids < row[5])).to(tl.int32), 0)
        low = tl.where(count >= k, middle, low)
        high = tl.where(count >= k, high, middle)
    return low


@triton.jit
def weight_above(row, survivors, size, top, floor, temperature, cut, key, LISTED: tl.constexpr,
                 TILE: tl.constexpr):  # fmt: skip
    """Return the weight of candidates whose key is above `key`."""
    total = tl.full([], 0, tl.int64)
    for start in range(0, size, TILE):
        _, keys, weights = load_tile(
            row, survivors, start, size, top, floor, temperature, cut, LISTED, TILE
        )
        total += tl.sum(tl.where(keys > key, weights, 0), 0)
    return total


@triton.jit
def nucleus_key(row, survivors, size, top, floor, temperature, cut, limit, LISTED: tl.constexpr,
                TILE: tl.constexpr):  # fmt: skip
    """Return the lowest key kept by top-p: the weight above it is below `limit`."""
    low = tl.full([], LOW_KEY, tl.int64) - 1
    high = tl.full([], HIGH_KEY, tl.int64)
    if LISTED:
        _, keys, weights = load_tile(
            row, survivors, 0, size, top, floor, temperature, cut, LISTED, TILE
        )
    for _ in range(33):
        middle = (low + high) >> 1
        if LISTED:
            above = tl.sum(tl.where(keys > middle, weights, 0), 0)
        else:
            above = weight_above(
                row, survivors, size, top, floor, temperature, cut, middle, LISTED, TILE
            )
        enough = above.to(tl.float64) < limit
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle)
    return high


@triton.jit
def keep_nucleus(keys, weights, key, before, limit, ties):
    """Return a tile's weights after top-p, and the number of ties at `key` so far."""
    tied = ((keys == key) & (weights > 0)).to(tl.int64)
    rank = ties + tl.cumsum(tied, 0) - tied
    kept = (keys > key) | ((tied > 0) & ((before + rank * weights).to(tl.float64) < limit))
    return tl.where(kept, weights, 0), ties + tl.sum(tied, 0)


@triton.jit
def resolve(row, survivors, size, top, floor, temperature, cut, all_weight, top_p, word,
            LISTED: tl.constexpr, TILE: tl.constexpr):  # fmt: skip
    """Return the token drawn from the candidates above `cut` by top-p and the inverse CDF."""
    key = tl.full([], LOW_KEY, tl.int64) - 1
    before = tl.full([], 0, tl.int64)
    limit = top_p * all_weight.to(tl.float64)
    total = all_weight
    if top_p < 1.0:
        key = nucleus_key(
            row, survivors, size, top, floor, temperature, cut, limit, LISTED, TILE
        )
        before = weight_above(
            row, survivors, size, top, floor, temperature, cut, key, LISTED, TILE
        )
        total = before * 0
        ties = before * 0
        for start in range(0, size, TILE):
            _, keys, weights = load_tile(
                row, survivors, start, size, top, floor, temperature, cut, LISTED, TILE
            )
            weights, ties = keep_nucleus(keys, weights, key, before, limit, ties)
            total += tl.sum(weights, 0)
    target = target_weight(total, word)
    running = before * 0
    ties = before * 0
    token = tl.full([], NO_ID, tl.int32)
    for start in range(0, size, TILE):
        ids, keys, weights = load_tile(
            row, survivors, start, size, top, floor, temperature, cut, LISTED, TILE
        )
        if top_p < 1.0:
            weights, ties = keep_nucleus(keys, weights, key, before, limit, ties)
        reached = running + tl.cumsum(weights, 0)
        token = tl.minimum(token, tl.min(tl.where(reached > target, ids, NO_ID), 0))
        running += tl.sum(weights, 0)
    return token


@triton.jit
def sample_row(row, top, best, reals, top_k, word, survivors, TILE: tl.constexpr,
               LIST: tl.constexpr):  # fmt: skip
    """Return the token drawn at a row that is not greedy."""
    temperature, top_p = tl.load(reals + P_TEMPERATURE), tl.load(reals + P_TOP_P)
    vocab, wide_top = row[5], top.to(tl.float64)
    floor = wide_top - tl.load(reals + P_MARGIN)
    ranks = (top_k > 0) & (top_k < vocab)
    wanted = tl.where(ranks, top_k, tl.where(top_p < 1.0, LIST // 2, 0))
    bound = tl.full([], LOW_KEY, tl.int64)
    if (wanted > 0) & (wanted <= TILE):
        bound = kth_key(sort_key(best), wanted)
    size = tl.full([], LIST + 1, tl.int32)
    all_weight = tl.full([], 0, tl.int64)
    weighs = (top_p < 1.0) & (ranks == 0)
    if (wanted > 0) | (floor > NEG_INF):
        size, all_weight = collect(
            row, wide_top, floor, temperature, bound, weighs, survivors[0], survivors[1], TILE, LIST
        )
    listed = size <= LIST
    cut = tl.full([], LOW_KEY, tl.int64)
    if listed:
        ids, keys, weights = load_tile(
            row, survivors, 0, size, wide_top, floor, temperature, cut, True, LIST
        )
        if ranks:
            cut = kth_key(tl.where(ids < NO_ID, keys, LOW_KEY), top_k)
        own_weight = tl.sum(tl.where(keys >= cut, weights, 0), 0)
        if weighs:
            listed = own_weight.to(tl.float64) >= top_p * all_weight.to(tl.float64)
        else:
            all_weight = own_weight
    if listed:
        token = resolve(
            row, survivors, size, wide_top, floor, temperature, cut, all_weight, top_p, word,
            True, LIST,
        )  # fmt: skip
    else:
        if ranks:
            cut = kth_of_all(row, top_k, TILE)
        all_weight = weight_above(
            row, survivors, vocab, wide_top, floor, temperature, cut, cut - 1, False, TILE
        )
        token = resolve(
            row, survivors, vocab, wide_top, floor, temperature, cut, all_weight, top_p, word,
            False, TILE,
        )  # fmt: skip
    return token


@triton.jit
def draw_kernel(logits, tree_stride, row_stride, tables, table_stride, sampling, doubles, singles,
                marks, counts, bias, given, out, list_values, list_ids, vocab,
                GIVEN: tl.constexpr, TILE: tl.constexpr, LIST: tl.constexpr):  # fmt: skip
    """Write the token of one live row."""
    program = tl.program_id(0).to(tl.int64)
    tree, node = program // ROWS, program % ROWS
    table = tables + tree * table_stride
    if node < tl.load(table + T_LIVE):
        here = logits + tree * tree_stride + node * row_stride
        row = open_row(here, table, node, sampling, singles, marks, counts, bias, vocab)
        top, token, best = find_top(row, TILE)
        slot = tl.load(table + T_SLOT).to(tl.int64)
        words = sampling + slot * P_WORDS
        if ((row[3] & IS_GREEDY) == 0) & (top > NEG_INF):
            if GIVEN:
                word = tl.load(given + program).to(tl.uint64, bitcast=True)
            else:
                position = tl.load(table + T_LENGTH) + row[2][2] + 1
                word = random_word(
                    tl.load(words + P_SEED_LOW), tl.load(words + P_SEED_HIGH),
                    tl.load(words + P_CHOICE), position,
                )  # fmt: skip
            survivors = (list_values + program * LIST, list_ids + program * LIST)
            token = sample_row(
                row, top, best, doubles + slot * P_DOUBLES, tl.load(words + P_TOP_K), word,
                survivors, TILE, LIST,
            )  # fmt: skip
        tl.store(out + program, token)
