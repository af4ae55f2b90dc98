"""Log-probabilities of the emitted tokens' own rows in Triton: one program an emitted token."""

import triton
import triton.language as tl

from services.contract.limits import MIN_LOGPROB
from services.kernels.fixed import WEIGHT_ONE
from services.kernels.fixed.kernel_fixed import HIGH_KEY, LOW_KEY, sort_key, weight
from services.kernels.sample import params as p
from services.kernels.sample.kernel_filters import (
    keep_nucleus,
    kth_of_all,
    load_tile,
    nucleus_key,
    weight_above,
)
from services.kernels.sample.kernel_values import (
    IS_GREEDY,
    NEG_INF,
    P_DOUBLES,
    P_MARGIN,
    P_SCALE,
    P_TOP_K,
    P_TOP_P,
    P_WORDS,
    T_LIVE,
    T_SLOT,
    find_top,
    open_row,
    tile_values,
)
from services.kernels.sample.kernel_walk import EMITTED, NODES, NUM_EMITTED, PATH, PATH_WORDS
from services.kernels.select.kernel_ranked import LOWEST, pack, packed_id, unpacked_value

IS_PROCESSED = tl.constexpr(p.IS_PROCESSED)
P_NUM_LOGPROBS = tl.constexpr(p.NUM_LOGPROBS)
ONE = tl.constexpr(WEIGHT_ONE)
FLOOR = tl.constexpr(MIN_LOGPROB)


@triton.jit
def kept_range(row, top, floor, scale, top_k, top_p, TILE: tl.constexpr):
    """Return what the filters keep: all keys above one, ids up to one at it, total weight."""
    vocab = row[5]
    cut = tl.full([], LOW_KEY, tl.int32)
    if (top_k > 0) & (top_k < vocab):
        cut = kth_of_all(row, top_k, TILE)
    total = weight_above(row, (), vocab, top, floor, scale, cut, LOW_KEY, False, TILE)
    key = tl.full([], LOW_KEY, tl.int32)
    last = tl.full([], -1, tl.int32)
    if top_p < 1.0:
        limit = top_p * total.to(tl.float64)
        key = nucleus_key(row, (), vocab, top, floor, scale, cut, limit, False, TILE)
        before = weight_above(row, (), vocab, top, floor, scale, cut, key, False, TILE)
        total = before * 0
        ties = before * 0
        for start in range(0, vocab, TILE):
            ids, keys, weights = load_tile(
                row, (), start, vocab, top, floor, scale, cut, False, TILE
            )
            weights, ties = keep_nucleus(keys, weights, key, before, limit, ties)
            total += tl.sum(weights, 0)
            last = tl.maximum(last, tl.max(tl.where((keys == key) & (weights > 0), ids, -1), 0))
    return cut, key, last, total


@triton.jit
def logprob(value, token, top, scale, floor, kept, plain):
    """Return the log-probability of one token of a row."""
    cut, key, last, total = kept
    wide, own = value.to(tl.float64), sort_key(value)
    exponent = (wide - top) * scale
    keep = (value > NEG_INF) & (wide >= floor) & (own >= cut)
    keep = keep & ((own > key) | ((own == key) & (token <= last)))
    keep = keep & ((weight(exponent) > 0) | (plain != 0))
    result = exponent - tl.log(total.to(tl.float64) / ONE)
    return tl.where(keep & (result > FLOOR), result, FLOOR).to(tl.float32)


@triton.jit
def token_value(row, token, TILE: tl.constexpr):
    """Return the value of one token of a row."""
    return tl.max(tile_values(row, tl.zeros([TILE], tl.int32) + token), 0)


@triton.jit
def logprobs_kernel(logits, tree_stride, row_stride, tables, table_stride, sampling, doubles,
                    singles, marks, counts, bias, path, out_ids, out, width, vocab,
                    TILE: tl.constexpr):  # fmt: skip
    """Write the log-probabilities of one emitted token's row, if its slot asks for them."""
    program = tl.program_id(0).to(tl.int64)
    tree, place = program // PATH, program % PATH
    table = tables + tree * table_stride
    slot = tl.load(table + T_SLOT).to(tl.int64)
    words, reals = sampling + slot * P_WORDS, doubles + slot * P_DOUBLES
    count = tl.load(words + P_NUM_LOGPROBS)
    walked = (tl.load(table + T_LIVE) > 0) & (
        place < tl.load(path + slot * PATH_WORDS + NUM_EMITTED)
    )
    if walked & (count >= 0):
        node = tl.load(path + slot * PATH_WORDS + NODES + place)
        here = logits + tree * tree_stride + node * row_stride
        row = open_row(here, table, node, sampling, singles, marks, counts, bias, vocab)
        processed = ((row[3] & IS_PROCESSED) != 0).to(tl.int32)
        plain = ((processed == 0) | ((row[3] & IS_GREEDY) != 0)).to(tl.int32)
        shown = (row[0], row[1], row[2], row[3] * processed, row[4] & (processed != 0), vocab)
        narrow_top, _, _ = find_top(shown, 0, vocab, TILE)
        top = narrow_top.to(tl.float64)
        scale = tl.full([], 1.0, tl.float64)
        floor = tl.full([], NEG_INF, tl.float64)
        top_p = tl.full([], 1.0, tl.float64)
        top_k = tl.full([], 0, tl.int32)
        if plain == 0:
            scale = tl.load(reals + P_SCALE)
            floor = top - tl.load(reals + P_MARGIN)
            top_p, top_k = tl.load(reals + P_TOP_P), tl.load(words + P_TOP_K)
        kept = kept_range(shown, top, floor, scale, top_k, top_p, TILE)
        to = (slot * PATH + place) * width
        token = tl.load(path + slot * PATH_WORDS + EMITTED + place)
        value = token_value(shown, token, 32)
        tl.store(out_ids + to, token)
        tl.store(out + to, logprob(value, token, top, scale, floor, kept, plain))
        previous = (tl.full([], HIGH_KEY, tl.int64) + 1) << 31
        previous = previous + (previous - 1)
        for rank in range(1, count + 1):
            best = tl.full([], LOWEST, tl.int64)
            for start in range(0, vocab, TILE):
                ids = start + tl.arange(0, TILE)
                packed = pack(tile_values(shown, ids), ids, True)
                fits = (packed < previous) & (ids < vocab)
                best = tl.maximum(best, tl.max(tl.where(fits, packed, LOWEST), 0))
            previous = best
            token, value = packed_id(best, True), unpacked_value(best)
            tl.store(out_ids + to + rank, token)
            tl.store(out + to + rank, logprob(value, token, top, scale, floor, kept, plain))
