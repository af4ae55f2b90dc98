"""Exact GDN kernels with explicit layouts: tree scan, two-level scan, prompt chain, replay.

A program owns BV value rows of one head and runs a list of nodes ("events") in order. Four lanes
share a row, so a dot costs two shuffles. Operands of up to EB events are normalised once into
shared memory; then the warps run on their own, with no barrier and no global load but the event
word. A row's bits depend on its own state and operands, not on BV, EB or the number of warps.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from services.kernels.gdn.kernel_step import (
    beta_gate,
    decay_gate,
    inverse_norm,
    step_dot,
    step_output,
    step_state,
    step_update,
)
from services.kernels.kernel_names import as_floats, barrier

CHUNK = gl.constexpr(32)


@gluon.constexpr_function
def tile_layout(num_warps):
    """Return the layout of a chunk [BV, CHUNK] of state columns: CHUNK / 4 lanes share a row."""
    lanes = CHUNK.value // 4
    return gl.BlockedLayout([1, 4], [32 // lanes, lanes], [num_warps, 1], [1, 0])


@gluon.jit
def load_state(ptr, BV: gl.constexpr, DK: gl.constexpr, TILE: gl.constexpr):
    """Load a state tile [BV, DK] as chunks."""
    rows = gl.arange(0, BV, gl.SliceLayout(1, TILE))[:, None] * DK
    at = ptr + rows + gl.arange(0, CHUNK, gl.SliceLayout(0, TILE))[None, :]
    s = (gl.load(at),)
    for i in gl.static_range(1, DK // CHUNK):
        s = s + (gl.load(at + i * CHUNK),)
    return s


@gluon.jit
def no_state(BV: gl.constexpr, DK: gl.constexpr, TILE: gl.constexpr):
    """Return a tile of zeros, to be loaded later."""
    s = (gl.full([BV, CHUNK], 0.0, gl.float32, TILE),)
    for _ in gl.static_range(1, DK // CHUNK):
        s = s + (gl.full([BV, CHUNK], 0.0, gl.float32, TILE),)
    return s


@gluon.jit
def store_state(ptr, s, BV: gl.constexpr, DK: gl.constexpr, TILE: gl.constexpr):
    """Store a state tile loaded by load_state."""
    rows = gl.arange(0, BV, gl.SliceLayout(1, TILE))[:, None] * DK
    at = ptr + rows + gl.arange(0, CHUNK, gl.SliceLayout(0, TILE))[None, :]
    for i in gl.static_range(DK // CHUNK):
        gl.store(at + i * CHUNK, s[i])


@gluon.jit
def allocate(EB: gl.constexpr, DK: gl.constexpr, BV: gl.constexpr, QUERIES: gl.constexpr):
    """Return the staging buffers (k, beta v, -beta g, g) and (w, k . q) where outputs are wanted.

    The gates are spread over the rows: a load at one address for all lanes would be moved to a
    uniform register, and the warp would wait for it.
    """
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    k = gl.allocate_shared_memory(gl.float32, [EB, DK], flat)
    bv = gl.allocate_shared_memory(gl.float32, [EB, BV], flat)
    bg = gl.allocate_shared_memory(gl.float32, [EB, BV], flat)
    g = gl.allocate_shared_memory(gl.float32, [EB, BV], flat)
    if QUERIES:
        w = gl.allocate_shared_memory(gl.float32, [EB, DK], flat)
        kq = gl.allocate_shared_memory(gl.float32, [EB, 1], flat)
        return (k, bv, bg, g, w, kq)
    else:
        return (k, bv, bg, g)


@gluon.jit
def _node(nodes_ptr, first, count, offsets, TABLE: gl.constexpr):
    if TABLE:
        at = nodes_ptr + first + offsets
        return gl.load(at, mask=first + offsets < count, other=0) & 31
    else:
        return gl.where(first + offsets < count, first + offsets, 0)


@gluon.jit
def fetch(
    mixed_ptr, ab_ptr, nodes_ptr, first, count, head, row0, C, AB,
    HK: gl.constexpr, HV: gl.constexpr, DK: gl.constexpr, DV: gl.constexpr, BV: gl.constexpr,
    EB: gl.constexpr, W: gl.constexpr, TABLE: gl.constexpr, QUERIES: gl.constexpr,
):  # fmt: skip
    """Load the raw operands of events first .. first + EB - 1, keys and queries 16 at a time.

    Args    C, AB: distance between rows of mixed and ab. TABLE: node ids come from nodes_ptr,
            else event i is row i.
    """
    KEYS: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [W, 1], [1, 0])
    VALUES: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BV, BV // 8], [W, 1], [1, 0])
    row = _node(nodes_ptr, first, count, gl.arange(0, EB, gl.SliceLayout(1, VALUES)), TABLE)
    cols_v = 2 * HK * DK + head * DV + row0 + gl.arange(0, BV, gl.SliceLayout(0, VALUES))
    cols = head // (HV // HK) * DK + gl.arange(0, DK, gl.SliceLayout(0, KEYS))
    raw = (gl.load(mixed_ptr + row[:, None] * C + cols_v[None, :]),)
    raw = raw + (gl.load(ab_ptr + row * AB + head), gl.load(ab_ptr + row * AB + HV + head))
    for i in gl.static_range(EB // 16):
        span = i * 16 + gl.arange(0, 16, gl.SliceLayout(1, KEYS))
        node = _node(nodes_ptr, first, count, span, TABLE)
        at = mixed_ptr + node[:, None] * C + cols[None, :]
        raw = raw + (gl.load(at + HK * DK),)
        if QUERIES:
            raw = raw + (gl.load(at), gl.load(ab_ptr + node * AB + HV + head))
    return raw


@gluon.jit
def stage(
    smem, raw, a_log, dt_bias, count, DK: gl.constexpr, BV: gl.constexpr, EB: gl.constexpr,
    QUERIES: gl.constexpr,
):  # fmt: skip
    """Bring `count` fetched events into the staging buffers, normalised and gated."""
    plane: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    v = raw[0].to(gl.float32)
    g = decay_gate(raw[1].to(gl.float32), a_log, dt_bias)
    beta = beta_gate(raw[2].to(gl.float32))
    spread = gl.full([EB, BV], 1.0, gl.float32, raw[0].type.layout)
    as_floats(smem[1], [EB, BV], plane).store(beta[:, None] * v)
    as_floats(smem[2], [EB, BV], plane).store((-beta * g)[:, None] * spread)
    as_floats(smem[3], [EB, BV], plane).store(g[:, None] * spread)
    EACH: gl.constexpr = 3 if QUERIES else 1
    for i in gl.static_range(EB // 16):
        if i * 16 < count:
            k = raw[3 + i * EACH].to(gl.float32)
            k = k * inverse_norm(k)[:, None]
            as_floats(smem[0], [EB, DK], plane).slice(i * 16, 16).store(k)
            if QUERIES:
                q = raw[4 + i * EACH].to(gl.float32)
                q = q * (inverse_norm(q) * DK**-0.5)[:, None]
                kq = gl.sum(k * q, axis=1)
                weight = beta_gate(raw[5 + i * EACH].to(gl.float32)) * kq
                w = gl.fma(-weight[:, None], k, q)
                as_floats(smem[4], [EB, DK], plane).slice(i * 16, 16).store(w)
                as_floats(smem[5], [EB], flat).slice(i * 16, 16).store(kq)
    barrier()


@gluon.jit
def load_key(smem, e, DK: gl.constexpr, TILE: gl.constexpr):
    """Load k of staged event e, chunked."""
    return _vector(smem[0], e, DK, TILE)


@gluon.jit
def load_query(smem, e, DK: gl.constexpr, TILE: gl.constexpr):
    """Load w of staged event e, chunked."""
    return _vector(smem[4], e, DK, TILE)


@gluon.jit
def _vector(smem, e, DK: gl.constexpr, TILE: gl.constexpr):
    row = smem.index(e)
    x = (row.slice(0, CHUNK).load(gl.SliceLayout(0, TILE)),)
    for i in gl.static_range(1, DK // CHUNK):
        x = x + (row.slice(i * CHUNK, CHUNK).load(gl.SliceLayout(0, TILE)),)
    return x


@gluon.jit
def event_state(smem, s, k, e, DK: gl.constexpr, TILE: gl.constexpr):
    """Return the state after staged event e, whose key is k, on its parent's tile s."""
    bv = smem[1].index(e).load(gl.SliceLayout(1, TILE))
    bg = smem[2].index(e).load(gl.SliceLayout(1, TILE))
    g = smem[3].index(e).load(gl.SliceLayout(1, TILE))
    u = step_update(step_dot(s, k, DK // CHUNK), bv, bg)
    return step_state(s, k, u, g, DK // CHUNK)


@gluon.jit
def event_output(smem, s, w, e, DK: gl.constexpr, TILE: gl.constexpr):
    """Return the output rows of staged event e, whose query is w, on its parent's tile s."""
    bv = smem[1].index(e).load(gl.SliceLayout(1, TILE))
    g = smem[3].index(e).load(gl.SliceLayout(1, TILE))
    kq = smem[5].index(e).load(gl.SliceLayout(1, TILE))
    return step_output(step_dot(s, w, DK // CHUNK), g, bv, kq)
