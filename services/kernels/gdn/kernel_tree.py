"""Exact tree kernels: one_pass (each state tile read once) and the paper's two_level scan."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from services.kernels.gdn.kernel_tile import (
    allocate,
    event_output,
    event_state,
    fetch,
    load_key,
    load_query,
    load_state,
    no_state,
    stage,
    store_state,
    tile_layout,
)

# Bits of an event word beside the node id (tree_tables writes them); the first word of a run from
# the slot's state holds the run's length in its upper bits.
LEAF = gl.constexpr(32)
EMIT = gl.constexpr(64)


@gluon.jit
def _zero_padding(out_at, live, rows, T: gl.constexpr, STEP: gl.constexpr):
    for row in range(live, T):
        gl.store(out_at + row * STEP, (rows * 0).to(out_at.dtype.element_ty))


@gluon.jit(do_not_specialize=["num_layers", "layer"])
def scan_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, tables_ptr, out_ptr,
    num_layers, layer,
    HK: gl.constexpr, HV: gl.constexpr, DK: gl.constexpr, DV: gl.constexpr, T: gl.constexpr,
    BV: gl.constexpr, EB: gl.constexpr, W: gl.constexpr, TABLE_WORDS: gl.constexpr,
    COUNTS: gl.constexpr, EVENTS: gl.constexpr, LANE_EVENTS: gl.constexpr,
):  # fmt: skip
    """Run one lane of events over one tile; grid (heads * tiles, lanes, batch)."""
    TILE: gl.constexpr = tile_layout(W)
    C: gl.constexpr = 2 * HK * DK + HV * DV
    head = gl.program_id(0) // (DV // BV)
    row0 = (gl.program_id(0) % (DV // BV)) * BV
    lane = gl.program_id(1)
    table = tables_ptr + gl.program_id(2) * TABLE_WORDS
    slot = gl.load(table + 2).to(gl.int64)
    count = gl.load(table + COUNTS + lane)
    rows = gl.arange(0, BV, gl.SliceLayout(1, TILE))
    out_at = out_ptr + (gl.program_id(2) * T * HV + head) * DV + row0 + rows
    if lane == gl.num_programs(1) - 1:
        _zero_padding(out_at, gl.load(table), rows, T, HV * DV)
    if count == 0:
        return
    active = gl.load(words_ptr + slot * 16 + 2)
    state_ptr = recurrent_ptr + ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK)
    state_ptr += (head * DV + row0) * DK
    ring = (slot * num_layers + layer) * 32
    smem = allocate(EB, DK, BV, True)
    mixed_at = mixed_ptr + ring * C
    ab_at = ab_ptr + ring * (2 * HV)
    events = table + EVENTS + lane * LANE_EVENTS
    a_log = gl.load(a_log_ptr + head)
    dt_bias = gl.load(dt_bias_ptr + head)
    left = gl.load(events) >> 8
    s = no_state(BV, DK, TILE)
    for first in range(0, count, EB):
        raw = fetch(
            mixed_at, ab_at, events, first, count, head, row0, C, 2 * HV,
            HK, HV, DK, DV, BV, EB, W, True, True,
        )  # fmt: skip
        if first == 0:
            s = load_state(state_ptr, BV, DK, TILE)
        stage(smem, raw, a_log, dt_bias, count - first, DK, BV, EB, True)
        at = 0
        end = gl.minimum(EB, count - first)
        while at < end:
            if left == 0:
                left = gl.load(events + first + at) >> 8
                s = load_state(state_ptr, BV, DK, TILE)
            stop = gl.minimum(at + left, end)
            left -= stop - at
            word = gl.load(events + first + at)
            for e in range(at, stop):
                following = gl.load(events + first + e + 1)
                w = load_query(smem, e, DK, TILE)
                o = event_output(smem, s, w, e, DK, TILE).to(out_ptr.dtype.element_ty)
                emit = (rows >= 0) & ((word & EMIT) != 0)
                gl.store(out_at + (word & 31) * (HV * DV), o, mask=emit)
                if (word & LEAF) == 0:
                    s = event_state(smem, s, load_key(smem, e, DK, TILE), e, DK, TILE)
                word = following
            at = stop


@gluon.jit(do_not_specialize=["num_layers", "layer"])
def path_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, tables_ptr, out_ptr,
    cut_ptr, num_layers, layer,
    HK: gl.constexpr, HV: gl.constexpr, DK: gl.constexpr, DV: gl.constexpr, T: gl.constexpr,
    BV: gl.constexpr, W: gl.constexpr, TABLE_WORDS: gl.constexpr, PATHS: gl.constexpr,
    LENGTHS: gl.constexpr, OWN: gl.constexpr, FORKS: gl.constexpr, LEVEL: gl.constexpr,
):  # fmt: skip
    """Run the trunk (level 0, storing cut states) or the paths below it (level 1) of one tile.

    Grid (heads * tiles, path lanes, batch); cut [B, 16, Hv, dv, dk] fp32 by depth.
    """
    TILE: gl.constexpr = tile_layout(W)
    C: gl.constexpr = 2 * HK * DK + HV * DV
    head = gl.program_id(0) // (DV // BV)
    row0 = (gl.program_id(0) % (DV // BV)) * BV
    batch = gl.program_id(2)
    table = tables_ptr + batch * TABLE_WORDS
    slot = gl.load(table + 2).to(gl.int64)
    rows = gl.arange(0, BV, gl.SliceLayout(1, TILE))
    out_at = out_ptr + (batch * T * HV + head) * DV + row0 + rows
    tile = (head * DV + row0) * DK
    cut_at = cut_ptr + batch.to(gl.int64) * (16 * HV * DV * DK) + tile
    active = gl.load(words_ptr + slot * 16 + 2)
    state_ptr = recurrent_ptr + ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK) + tile
    ring = (slot * num_layers + layer) * 32
    smem = allocate(16, DK, BV, True)
    a_log = gl.load(a_log_ptr + head)
    dt_bias = gl.load(dt_bias_ptr + head)
    num_paths = 1
    if LEVEL == 0:
        _zero_padding(out_at, gl.load(table), rows, T, HV * DV)
    else:
        num_paths = gl.load(table + 4)
    for path in range(gl.program_id(1), num_paths, gl.num_programs(1)):
        fork = 0
        own = 0
        count = gl.load(table + 6)
        if LEVEL == 1:
            fork = gl.load(table + FORKS + path)
            own = gl.load(table + OWN + path) - fork
            count = gl.load(table + LENGTHS + path) - fork
            state_ptr = cut_at + (fork - 1) * (HV * DV * DK)
        nodes = table + PATHS + path * 16 + fork
        raw = fetch(
            mixed_ptr + ring * C, ab_ptr + ring * (2 * HV), nodes, 0, count, head, row0, C,
            2 * HV, HK, HV, DK, DV, BV, 16, W, True, True,
        )  # fmt: skip
        s = load_state(state_ptr, BV, DK, TILE)
        stage(smem, raw, a_log, dt_bias, count, DK, BV, 16, True)
        for e in range(0, count):
            o = event_output(smem, s, load_query(smem, e, DK, TILE), e, DK, TILE)
            at = out_at + gl.load(nodes + e) * (HV * DV)
            gl.store(at, o.to(out_ptr.dtype.element_ty), mask=(rows >= 0) & (e >= own))
            s = event_state(smem, s, load_key(smem, e, DK, TILE), e, DK, TILE)
            if LEVEL == 0:
                store_state(cut_at + e * (HV * DV * DK), s, BV, DK, TILE)
