"""Exact tree kernels: one_pass (each state tile read once) and the paper's two_level scan."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from services.kernels.gdn.kernel_step import step_state
from services.kernels.gdn.kernel_tile import (
    allocate,
    event_key,
    event_output,
    load_state,
    stage,
    store_state,
    tile_layout,
)

# Bits of an event word beside the node id (tree_tables writes them).
LEAF = gl.constexpr(32)
EMIT = gl.constexpr(64)
RESTART = gl.constexpr(128)


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
    STARTS: gl.constexpr, EVENTS: gl.constexpr,
):  # fmt: skip
    """Run one lane of chains over one tile; grid (heads * tiles, lanes, batch)."""
    TILE: gl.constexpr = tile_layout(W)
    C: gl.constexpr = 2 * HK * DK + HV * DV
    head = gl.program_id(0) // (DV // BV)
    row0 = (gl.program_id(0) % (DV // BV)) * BV
    lane = gl.program_id(1)
    table = tables_ptr + gl.program_id(2) * TABLE_WORDS
    slot = gl.load(table + 2).to(gl.int64)
    start = gl.load(table + STARTS + lane)
    count = gl.load(table + STARTS + lane + 1) - start
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
    s = load_state(state_ptr, BV, DK, TILE)
    smem = allocate(EB, DK, BV, True)
    events = table + EVENTS + start
    a_log = gl.load(a_log_ptr + head)
    dt_bias = gl.load(dt_bias_ptr + head)
    for first in range(0, count, EB):
        stage(
            smem, mixed_ptr + ring * C, ab_ptr + ring * (2 * HV), events, first, count, a_log,
            dt_bias, head, row0, C, 2 * HV, HK, HV, DK, DV, BV, EB, W, True, True,
        )  # fmt: skip
        word = gl.load(events + first)
        for e in range(0, gl.minimum(EB, count - first)):
            following = gl.load(events + first + e + 1)
            if (word & RESTART) != 0:
                s = load_state(state_ptr, BV, DK, TILE)
            k, u, g = event_key(smem, s, e, DK, TILE)
            o = event_output(smem, s, e, u, g, DK, TILE).to(out_ptr.dtype.element_ty)
            at = out_at + (word & 31) * (HV * DV)
            gl.store(at, o, mask=(rows >= 0) & ((word & EMIT) != 0))
            if (word & LEAF) == 0:
                s = step_state(s, k, u, g, DK // 16)
            word = following


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
        s = load_state(state_ptr, BV, DK, TILE)
        stage(
            smem, mixed_ptr + ring * C, ab_ptr + ring * (2 * HV), nodes, 0, count, a_log,
            dt_bias, head, row0, C, 2 * HV, HK, HV, DK, DV, BV, 16, W, True, True,
        )  # fmt: skip
        for e in range(0, count):
            k, u, g = event_key(smem, s, e, DK, TILE)
            o = event_output(smem, s, e, u, g, DK, TILE).to(out_ptr.dtype.element_ty)
            at = out_at + gl.load(nodes + e) * (HV * DV)
            gl.store(at, o, mask=(rows >= 0) & (e >= own))
            s = step_state(s, k, u, g, DK // 16)
            if LEVEL == 0:
                store_state(cut_at + e * (HV * DV * DK), s, BV, DK, TILE)
