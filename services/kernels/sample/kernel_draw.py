"""The draw of every live row in Triton, the vocabulary of a row split over four programs.

`tops` finds each split's maximum and the maximum of each lane. `collect` lists, in ascending
id, the values at or above a lower bound of what the filters keep. `resolve` filters the list and
draws; rows whose list overflowed, or does not hold all that top-p keeps, are left for
`overflow`, which runs the same code on the whole vocabulary.
"""

import triton
import triton.language as tl

from services.kernels.fixed.kernel_fixed import (
    LOW_KEY,
    random_word,
    sort_key,
    target_weight,
    weight,
)
from services.kernels.sample.kernel_filters import (
    kth_key,
    kth_of_all,
    load_tile,
    resolve,
    weight_above,
)
from services.kernels.sample.kernel_values import (
    IS_GREEDY,
    NEG_INF,
    P_CHOICE,
    P_DOUBLES,
    P_FLAGS,
    P_MARGIN,
    P_SCALE,
    P_SEED_HIGH,
    P_SEED_LOW,
    P_TOP_K,
    P_TOP_P,
    P_WORDS,
    POS_INF,
    ROWS,
    T_DEPTHS,
    T_LENGTH,
    T_LIVE,
    T_SLOT,
    find_top,
    open_row,
    tile_values,
)
from services.kernels.sample.state import SPLITS
from services.kernels.select.kernel_ranked import LOWEST, pack, packed_id, unpacked_value

PARTS = tl.constexpr(SPLITS)
LEFT_OVER = tl.constexpr(-2)


@triton.jit
def tops_kernel(logits, tree_stride, row_stride, tables, table_stride, sampling, doubles, singles,
                marks, counts, bias, tops, lane_tops, chunk, vocab,
                LANES: tl.constexpr):  # fmt: skip
    """Write one split's packed maximum and the maximum of each lane."""
    program, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tree, node = program // ROWS, program % ROWS
    table = tables + tree * table_stride
    if node < tl.load(table + T_LIVE):
        here = logits + tree * tree_stride + node * row_stride
        row = open_row(here, table, node, sampling, singles, marks, counts, bias, vocab)
        start, end = part * chunk, tl.minimum(part * chunk + chunk, vocab)
        top, token, best = find_top(row, start, end, LANES)
        place = program * PARTS + part
        packed = pack(top, token, True)
        tl.store(tops + place, tl.where(start < end, packed, LOWEST))
        tl.store(lane_tops + place * LANES + tl.arange(0, LANES), best)


@triton.jit
def choices(words, reals, packed_top, vocab, LIST: tl.constexpr):
    """Return a row's filter values: scale, top_p, top, floor, ranks, top_k, wanted."""
    top = unpacked_value(packed_top).to(tl.float64)
    top_p, top_k = tl.load(reals + P_TOP_P), tl.load(words + P_TOP_K)
    ranks = (top_k > 0) & (top_k < vocab)
    wanted = tl.where(ranks, top_k, tl.where(top_p < 1.0, LIST // 2, 0))
    floor = top - tl.load(reals + P_MARGIN)
    return tl.load(reals + P_SCALE), top_p, top, floor, ranks, top_k, wanted


@triton.jit
def is_weighed(ranks, top_p, floor):
    """Return whether `collect` adds up the weight of the whole row."""
    return (ranks == 0) & ((top_p < 1.0) | (floor == NEG_INF))


@triton.jit
def row_top(tops, program):
    """Return the packed maximum of a row."""
    return tl.max(tl.load(tops + program * PARTS + tl.arange(0, PARTS)), 0)


@triton.jit
def is_sampled(words, packed_top):
    """Return whether a row draws: not greedy, something is allowed, and none is infinite."""
    top = unpacked_value(packed_top)
    return ((tl.load(words + P_FLAGS) & IS_GREEDY) == 0) & (top > NEG_INF) & (top < POS_INF)


@triton.jit
def collect_kernel(logits, tree_stride, row_stride, tables, table_stride, sampling, doubles,
                   singles, marks, counts, bias, tops, lane_tops, sizes, totals, list_values,
                   list_ids, chunk, vocab, LANES: tl.constexpr, STEP: tl.constexpr,
                   LIST: tl.constexpr):  # fmt: skip
    """List one split's values at or above the bound, in ascending id."""
    program, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tree, node = program // ROWS, program % ROWS
    table = tables + tree * table_stride
    if node < tl.load(table + T_LIVE):
        slot = tl.load(table + T_SLOT).to(tl.int64)
        words, reals = sampling + slot * P_WORDS, doubles + slot * P_DOUBLES
        packed_top = row_top(tops, program)
        scale, top_p, top, floor, ranks, _, wanted = choices(words, reals, packed_top, vocab, LIST)
        place = program * PARTS + part
        if is_sampled(words, packed_top):
            lists, weighs = (wanted > 0) | (floor > NEG_INF), is_weighed(ranks, top_p, floor)
            bound = tl.full([], LOW_KEY, tl.int32)
            if (wanted > 0) & (wanted <= LANES * PARTS):
                lanes = program * PARTS * LANES + tl.arange(0, LANES * PARTS)
                bound = kth_key(sort_key(tl.load(lane_tops + lanes)), wanted)
            here = logits + tree * tree_stride + node * row_stride
            row = open_row(here, table, node, sampling, singles, marks, counts, bias, vocab)
            size, total = tl.full([], 0, tl.int32), tl.full([], 0, tl.int64)
            for start in range(part * chunk, tl.minimum(part * chunk + chunk, vocab), STEP):
                ids = start + tl.arange(0, STEP)
                x = tile_values(row, ids)
                wide = x.to(tl.float64)
                keep = (wide >= floor) & (x > NEG_INF)
                if weighs:
                    total += tl.sum(tl.where(keep, weight((wide - top) * scale), 0), 0)
                chosen = (keep & (sort_key(x) >= bound) & lists).to(tl.int32)
                found = tl.sum(chosen, 0)
                if found > 0:
                    offset = size + tl.cumsum(chosen, 0) - chosen
                    mask = (chosen > 0) & (offset < LIST)
                    tl.store(list_values + place * LIST + offset, x, mask=mask)
                    tl.store(list_ids + place * LIST + offset, ids, mask=mask)
                    size += found
            tl.store(sizes + place, tl.where(lists, size, LIST + 1))
            tl.store(totals + place, total)


@triton.jit
def row_word(table, node, words, given, program, GIVEN: tl.constexpr):
    """Return the row's 64 random bits."""
    if GIVEN:
        word = tl.load(given + program).to(tl.uint64, bitcast=True)
    else:
        position = tl.load(table + T_LENGTH) + tl.load(table + T_DEPTHS + node) + 1
        word = random_word(
            tl.load(words + P_SEED_LOW), tl.load(words + P_SEED_HIGH), tl.load(words + P_CHOICE),
            position,
        )  # fmt: skip
    return word


@triton.jit
def resolve_kernel(tables, table_stride, sampling, doubles, tops, sizes, totals, list_values,
                   list_ids, given, out, vocab, GIVEN: tl.constexpr,
                   LIST: tl.constexpr):  # fmt: skip
    """Write a row's token from its list, or leave the row over."""
    program = tl.program_id(0).to(tl.int64)
    tree, node = program // ROWS, program % ROWS
    table = tables + tree * table_stride
    if node < tl.load(table + T_LIVE):
        slot = tl.load(table + T_SLOT).to(tl.int64)
        words, reals = sampling + slot * P_WORDS, doubles + slot * P_DOUBLES
        packed_top = row_top(tops, program)
        token = packed_id(packed_top, True)
        if is_sampled(words, packed_top):
            token = token * 0 + LEFT_OVER
            scale, top_p, top, floor, ranks, top_k, _ = choices(
                words, reals, packed_top, vocab, LIST
            )
            parts = tl.arange(0, PARTS)
            held = tl.load(sizes + program * PARTS + parts)
            size, first = tl.sum(held, 0), tl.sum(tl.where(parts < 1, held, 0), 0)
            second = tl.sum(tl.where(parts < 2, held, 0), 0)
            firsts = (first, second, tl.sum(tl.where(parts < 3, held, 0), 0))
            survivors = (
                list_values + program * PARTS * LIST, list_ids + program * PARTS * LIST, firsts,
                LIST,
            )  # fmt: skip
            if size <= LIST:
                cut = tl.full([], LOW_KEY, tl.int32)
                ids, keys, weights = load_tile(
                    (), survivors, 0, size, top, floor, scale, cut, True, LIST
                )
                if ranks:
                    cut = kth_key(tl.where(ids < vocab, keys, LOW_KEY), top_k)
                total = tl.sum(tl.where(keys >= cut, weights, 0), 0)
                holds = total > 0
                if (top_p < 1.0) & (ranks == 0):
                    everything = tl.sum(tl.load(totals + program * PARTS + parts), 0)
                    holds = total.to(tl.float64) >= top_p * everything.to(tl.float64)
                    total = everything
                if holds:
                    word = row_word(table, node, words, given, program, GIVEN)
                    token = resolve(
                        (), survivors, size, top, floor, scale, cut, total, top_p, word, 0, size,
                        total * 0, True, LIST,
                    )  # fmt: skip
        tl.store(out + program, token)


@triton.jit
def overflow_kernel(logits, tree_stride, row_stride, tables, table_stride, sampling, doubles,
                    singles, marks, counts, bias, tops, totals, chunk, given, out, vocab,
                    GIVEN: tl.constexpr, STEP: tl.constexpr, LIST: tl.constexpr):  # fmt: skip
    """Write the token of a row that was left over, from the whole vocabulary."""
    program = tl.program_id(0).to(tl.int64)
    tree, node = program // ROWS, program % ROWS
    table = tables + tree * table_stride
    if (node < tl.load(table + T_LIVE)) & (tl.load(out + program) == LEFT_OVER):
        slot = tl.load(table + T_SLOT).to(tl.int64)
        words, reals = sampling + slot * P_WORDS, doubles + slot * P_DOUBLES
        scale, top_p, top, floor, ranks, top_k, _ = choices(
            words, reals, row_top(tops, program), vocab, LIST
        )
        here = logits + tree * tree_stride + node * row_stride
        row = open_row(here, table, node, sampling, singles, marks, counts, bias, vocab)
        cut = tl.full([], LOW_KEY, tl.int32)
        if ranks:
            cut = kth_of_all(row, top_k, STEP)
        word = row_word(table, node, words, given, program, GIVEN)
        first, stop = tl.full([], 0, tl.int32), vocab
        running = tl.full([], 0, tl.int64)
        if is_weighed(ranks, top_p, floor):
            parts = tl.arange(0, PARTS)
            split_weights = tl.load(totals + program * PARTS + parts)
            total = tl.sum(split_weights, 0)
            if top_p >= 1.0:
                # Only the split that holds the target weight is read again.
                ends = tl.cumsum(split_weights, 0)
                part = tl.sum((ends <= target_weight(total, word)).to(tl.int32), 0)
                running = tl.sum(tl.where(parts < part, split_weights, 0), 0)
                first = part * chunk
                stop = tl.minimum(first + chunk, vocab)
        else:
            total = weight_above(row, (), vocab, top, floor, scale, cut, LOW_KEY, False, STEP)
        token = resolve(
            row, (), vocab, top, floor, scale, cut, total, top_p, word, first, stop, running,
            False, STEP,
        )  # fmt: skip
        tl.store(out + program, token)
