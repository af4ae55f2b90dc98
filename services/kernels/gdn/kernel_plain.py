"""The exact GDN kernels in plain Triton: the same step, schedules and tables, layouts left to it.

The interpreter runs these; a GPU runs the kernels with explicit layouts, which it cannot run.
"""

import triton
import triton.language as tl

from services.kernels.gdn.kernel_step import (
    beta_gate,
    decay_gate,
    inverse_norm,
    step_dot,
    step_output,
    step_state,
    step_update,
)

CHUNK = tl.constexpr(32)
LEAF = tl.constexpr(32)
EMIT = tl.constexpr(64)


@triton.jit
def _chunks(ptr, N: tl.constexpr):
    cols = tl.arange(0, CHUNK)
    x = (tl.load(ptr + cols).to(tl.float32),)
    for i in tl.static_range(1, N):
        x = x + (tl.load(ptr + i * CHUNK + cols).to(tl.float32),)
    return x


@triton.jit
def _scaled(x, factor, N: tl.constexpr):
    y = (x[0] * factor,)
    for i in tl.static_range(1, N):
        y = y + (x[i] * factor,)
    return y


@triton.jit
def _weighted(q, k, weight, N: tl.constexpr):
    w = (tl.fma(k[0], -weight, q[0]),)
    for i in tl.static_range(1, N):
        w = w + (tl.fma(k[i], -weight, q[i]),)
    return w


@triton.jit
def load_state(ptr, BV: tl.constexpr, DK: tl.constexpr):
    """Load a state tile [BV, DK] as chunks."""
    at = ptr + tl.arange(0, BV)[:, None] * DK + tl.arange(0, CHUNK)[None, :]
    s = (tl.load(at),)
    for i in tl.static_range(1, DK // CHUNK):
        s = s + (tl.load(at + i * CHUNK),)
    return s


@triton.jit
def store_state(ptr, s, BV: tl.constexpr, DK: tl.constexpr):
    """Store a state tile loaded by load_state."""
    at = ptr + tl.arange(0, BV)[:, None] * DK + tl.arange(0, CHUNK)[None, :]
    for i in tl.static_range(DK // CHUNK):
        tl.store(at + i * CHUNK, s[i])


@triton.jit
def event(
    s, mixed_at, ab_at, a_log, dt_bias, head, row0,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Return (output rows, next state) of the row at mixed_at on its parent's tile s."""
    N: tl.constexpr = DK // CHUNK
    key = mixed_at + head // (HV // HK) * DK
    whole = tl.arange(0, DK)[None, :]
    q_all, k_all = tl.load(key + whole).to(tl.float32), tl.load(key + HK * DK + whole)
    k_all = k_all.to(tl.float32)
    q_norm, k_norm = tl.sum(inverse_norm(q_all)) * DK**-0.5, tl.sum(inverse_norm(k_all))
    q = _scaled(_chunks(key, N), q_norm, N)
    k = _scaled(_chunks(key + HK * DK, N), k_norm, N)
    kq = tl.sum((k_all * k_norm) * (q_all * q_norm))
    v = tl.load(mixed_at + 2 * HK * DK + head * DV + row0 + tl.arange(0, BV)).to(tl.float32)
    g = decay_gate(tl.load(ab_at + head).to(tl.float32), a_log, dt_bias)
    beta = beta_gate(tl.load(ab_at + HV + head).to(tl.float32))
    bv = beta * v
    gates = g + tl.zeros([BV], tl.float32)
    d = step_dot(s, _weighted(q, k, beta * kq, N), N)
    u = step_update(step_dot(s, k, N), bv, -beta * g)
    return step_output(d, g, bv, kq), step_state(s, k, u, gates, N)


@triton.jit
def scan_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, tables_ptr, out_ptr,
    num_layers, layer,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, T: tl.constexpr,
    BV: tl.constexpr, TABLE_WORDS: tl.constexpr, COUNTS: tl.constexpr, EVENTS: tl.constexpr,
    LANE_EVENTS: tl.constexpr,
):  # fmt: skip
    """Run one lane of events over one tile; grid (heads * tiles, lanes, batch)."""
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0) // (DV // BV)
    row0 = (tl.program_id(0) % (DV // BV)) * BV
    lane = tl.program_id(1)
    table = tables_ptr + tl.program_id(2) * TABLE_WORDS
    slot = tl.load(table + 2).to(tl.int64)
    out_at = out_ptr + (tl.program_id(2) * T * HV + head) * DV + row0 + tl.arange(0, BV)
    if lane == 0:
        for row in range(tl.load(table), T):
            tl.store(out_at + row * (HV * DV), tl.zeros([BV], out_ptr.dtype.element_ty))
    active = tl.load(words_ptr + slot * 16 + 2)
    state_ptr = recurrent_ptr + ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK)
    state_ptr += (head * DV + row0) * DK
    ring = (slot * num_layers + layer) * 32
    a_log, dt_bias = tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)
    s = load_state(state_ptr, BV, DK)
    for e in range(tl.load(table + COUNTS + lane)):
        word = tl.load(table + EVENTS + lane * LANE_EVENTS + e)
        if word >= 256:
            s = load_state(state_ptr, BV, DK)
        row = ring + (word & 31)
        o, after = event(
            s, mixed_ptr + row * C, ab_ptr + row * (2 * HV), a_log, dt_bias, head, row0,
            HK, HV, DK, DV, BV,
        )  # fmt: skip
        if (word & EMIT) != 0:
            tl.store(out_at + (word & 31) * (HV * DV), o.to(out_ptr.dtype.element_ty))
        if (word & LEAF) == 0:
            s = after


@triton.jit
def path_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, tables_ptr, out_ptr,
    cut_ptr, num_layers, layer,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, T: tl.constexpr,
    BV: tl.constexpr, TABLE_WORDS: tl.constexpr, PATHS: tl.constexpr, LENGTHS: tl.constexpr,
    OWN: tl.constexpr, FORKS: tl.constexpr, LEVEL: tl.constexpr,
):  # fmt: skip
    """Run the trunk (level 0, storing cut states) or the paths below it (level 1) of one tile."""
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0) // (DV // BV)
    row0 = (tl.program_id(0) % (DV // BV)) * BV
    batch = tl.program_id(2)
    table = tables_ptr + batch * TABLE_WORDS
    slot = tl.load(table + 2).to(tl.int64)
    out_at = out_ptr + (batch * T * HV + head) * DV + row0 + tl.arange(0, BV)
    tile = (head * DV + row0) * DK
    cut_at = cut_ptr + batch * (16 * HV * DV * DK) + tile
    active = tl.load(words_ptr + slot * 16 + 2)
    state_ptr = recurrent_ptr + ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK) + tile
    ring = (slot * num_layers + layer) * 32
    a_log, dt_bias = tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)
    num_paths = 1
    if LEVEL == 0:
        for row in range(tl.load(table), T):
            tl.store(out_at + row * (HV * DV), tl.zeros([BV], out_ptr.dtype.element_ty))
    else:
        num_paths = tl.load(table + 4)
    for path in range(tl.program_id(1), num_paths, tl.num_programs(1)):
        fork = 0
        own = 0
        count = tl.load(table + 6)
        if LEVEL == 1:
            fork = tl.load(table + FORKS + path)
            own = tl.load(table + OWN + path) - fork
            count = tl.load(table + LENGTHS + path) - fork
            state_ptr = cut_at + (fork - 1) * (HV * DV * DK)
        s = load_state(state_ptr, BV, DK)
        for e in range(count):
            node = tl.load(table + PATHS + path * 16 + fork + e)
            o, s = event(
                s, mixed_ptr + (ring + node) * C, ab_ptr + (ring + node) * (2 * HV), a_log,
                dt_bias, head, row0, HK, HV, DK, DV, BV,
            )  # fmt: skip
            if e >= own:
                tl.store(out_at + node * (HV * DV), o.to(out_ptr.dtype.element_ty))
            if LEVEL == 0:
                store_state(cut_at + e * (HV * DV * DK), s, BV, DK)


@triton.jit
def chain_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, slots_ptr, counts_ptr,
    out_ptr, num_layers, layer, length, c8, ab_stride,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Run `counts` of `length` rows in order and store the state; grid (heads * tiles, batch)."""
    head = tl.program_id(0) // (DV // BV)
    row0 = (tl.program_id(0) % (DV // BV)) * BV
    batch = tl.program_id(1)
    slot = tl.load(slots_ptr + batch).to(tl.int64)
    count = tl.load(counts_ptr + batch)
    active = tl.load(words_ptr + slot * 16 + 2)
    state_ptr = recurrent_ptr + ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK)
    state_ptr += (head * DV + row0) * DK
    out_at = out_ptr + (batch * length * HV + head) * DV + row0 + tl.arange(0, BV)
    a_log, dt_bias = tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)
    s = load_state(state_ptr, BV, DK)
    for e in range(count):
        row = batch * length + e
        o, s = event(
            s, mixed_ptr + row * (c8 * 8), ab_ptr + row * ab_stride, a_log, dt_bias, head, row0,
            HK, HV, DK, DV, BV,
        )  # fmt: skip
        tl.store(out_at + e * (HV * DV), o.to(out_ptr.dtype.element_ty))
    store_state(state_ptr, s, BV, DK)
    for row in range(count, length):
        tl.store(out_at + row * (HV * DV), tl.zeros([BV], out_ptr.dtype.element_ty))


@triton.jit
def replay_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, path_ptr, slots_ptr,
    num_layers,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Advance one tile of one layer along the accepted path, active set -> other set."""
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0) // (DV // BV)
    row0 = (tl.program_id(0) % (DV // BV)) * BV
    layer = tl.program_id(1)
    slot = tl.load(slots_ptr + tl.program_id(2)).to(tl.int64)
    words = words_ptr + slot * 16
    path = path_ptr + slot * 64
    active = tl.load(words + 2)
    if (tl.load(words) == tl.load(path)) & (tl.load(words + 1) == tl.load(path + 1)):
        tile = (head * DV + row0) * DK
        source = ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK) + tile
        target = ((slot * 2 + 1 - active) * num_layers + layer) * (HV * DV * DK) + tile
        ring = (slot * num_layers + layer) * 32
        a_log = tl.load(a_log_ptr + layer * HV + head)
        dt_bias = tl.load(dt_bias_ptr + layer * HV + head)
        s = load_state(recurrent_ptr + source, BV, DK)
        for e in range(tl.load(path + 2)):
            row = ring + tl.load(path + 16 + e)
            _, s = event(
                s, mixed_ptr + row * C, ab_ptr + row * (2 * HV), a_log, dt_bias, head, row0,
                HK, HV, DK, DV, BV,
            )  # fmt: skip
        store_state(recurrent_ptr + target, s, BV, DK)
