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


@gluon.constexpr_function
def tile_layout(num_warps):
    """Return the layout of a chunk [BV, 16]: 8 row lanes x 4 column lanes a warp."""
    return gl.BlockedLayout([1, 4], [8, 4], [num_warps, 1], [1, 0])


@gluon.jit
def load_state(ptr, BV: gl.constexpr, DK: gl.constexpr, TILE: gl.constexpr):
    """Load a state tile [BV, DK] as chunks of 16 columns."""
    rows = gl.arange(0, BV, gl.SliceLayout(1, TILE))[:, None] * DK
    at = ptr + rows + gl.arange(0, 16, gl.SliceLayout(0, TILE))[None, :]
    s = (gl.load(at),)
    for i in gl.static_range(1, DK // 16):
        s = s + (gl.load(at + i * 16),)
    return s


@gluon.jit
def store_state(ptr, s, BV: gl.constexpr, DK: gl.constexpr, TILE: gl.constexpr):
    """Store a state tile loaded by load_state."""
    rows = gl.arange(0, BV, gl.SliceLayout(1, TILE))[:, None] * DK
    at = ptr + rows + gl.arange(0, 16, gl.SliceLayout(0, TILE))[None, :]
    for i in gl.static_range(DK // 16):
        gl.store(at + i * 16, s[i])


@gluon.jit
def allocate(EB: gl.constexpr, DK: gl.constexpr, BV: gl.constexpr, QUERIES: gl.constexpr):
    """Return the staging buffers (k, v, gates) and (q, kq) where queries are wanted."""
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    k = gl.allocate_shared_memory(gl.float32, [EB, DK], flat)
    v = gl.allocate_shared_memory(gl.float32, [EB, BV], flat)
    g = gl.allocate_shared_memory(gl.float32, [EB, 1], flat)
    beta = gl.allocate_shared_memory(gl.float32, [EB, 1], flat)
    if QUERIES:
        q = gl.allocate_shared_memory(gl.float32, [EB, DK], flat)
        kq = gl.allocate_shared_memory(gl.float32, [EB, 1], flat)
        return (k, v, g, beta, q, kq)
    else:
        return (k, v, g, beta)


@gluon.jit
def _node(nodes_ptr, first, count, offsets, TABLE: gl.constexpr):
    if TABLE:
        at = nodes_ptr + first + offsets
        return gl.load(at, mask=first + offsets < count, other=0) & 31
    else:
        return gl.where(first + offsets < count, first + offsets, 0)


@gluon.jit
def _stage_values(
    smem, mixed_ptr, ab_ptr, nodes_ptr, first, count, a_log, dt_bias, head, channel, C, AB,
    HV: gl.constexpr, BV: gl.constexpr, EB: gl.constexpr, W: gl.constexpr, TABLE: gl.constexpr,
):  # fmt: skip
    VALUES: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BV, BV // 8], [W, 1], [1, 0])
    LINE: gl.constexpr = gl.BlockedLayout([1], [32], [W], [0])
    plane: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    rows = gl.arange(0, EB, gl.SliceLayout(1, VALUES))
    node = _node(nodes_ptr, first, count, rows, TABLE)
    cols = channel + gl.arange(0, BV, gl.SliceLayout(0, VALUES))
    v = gl.load(mixed_ptr + node[:, None] * C + cols[None, :])
    line = _node(nodes_ptr, first, count, gl.arange(0, EB, LINE), TABLE)
    a = gl.load(ab_ptr + line * AB + head).to(gl.float32)
    b = gl.load(ab_ptr + line * AB + HV + head).to(gl.float32)
    smem[1]._reinterpret(gl.float32, [EB, BV], plane).store(v.to(gl.float32))
    smem[2]._reinterpret(gl.float32, [EB], flat).store(decay_gate(a, a_log, dt_bias))
    smem[3]._reinterpret(gl.float32, [EB], flat).store(beta_gate(b))


@gluon.jit
def stage(
    smem, mixed_ptr, ab_ptr, nodes_ptr, first, count, a_log, dt_bias, head, row0, C, AB,
    HK: gl.constexpr, HV: gl.constexpr, DK: gl.constexpr, DV: gl.constexpr, BV: gl.constexpr,
    EB: gl.constexpr, W: gl.constexpr, TABLE: gl.constexpr, QUERIES: gl.constexpr,
):  # fmt: skip
    """Bring events first .. first + EB - 1 into shared memory: k, q normalised, v, gates, k . q.

    Args    C, AB: distance between rows of mixed and ab. TABLE: node ids come from nodes_ptr,
            else event i is row i.
    """
    PREP: gl.constexpr = gl.BlockedLayout([1, 8], [256 // DK, DK // 8], [W, 1], [1, 0])
    GROUP: gl.constexpr = W * (256 // DK)
    plane: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    cols = head // (HV // HK) * DK + gl.arange(0, DK, gl.SliceLayout(0, PREP))[None, :]
    span = gl.arange(0, GROUP, gl.SliceLayout(1, PREP))
    keys = ()
    queries = ()
    for i in gl.static_range(EB // GROUP):
        event = first + i * GROUP + span
        node = _node(nodes_ptr, first + i * GROUP, count, span, TABLE)
        at = mixed_ptr + node[:, None] * C + cols
        live = (event < count)[:, None]
        keys = keys + (gl.load(at + HK * DK, mask=live, other=0.0),)
        if QUERIES:
            queries = queries + (gl.load(at, mask=live, other=0.0),)
    _stage_values(
        smem, mixed_ptr, ab_ptr, nodes_ptr, first, count, a_log, dt_bias, head,
        2 * HK * DK + head * DV + row0, C, AB, HV, BV, EB, W, TABLE,
    )  # fmt: skip
    for i in gl.static_range(EB // GROUP):
        if first + i * GROUP < count:
            k = keys[i].to(gl.float32)
            k = k * inverse_norm(k)[:, None]
            smem[0]._reinterpret(gl.float32, [EB, DK], plane).slice(i * GROUP, GROUP).store(k)
            if QUERIES:
                q = queries[i].to(gl.float32)
                q = q * (inverse_norm(q) * DK**-0.5)[:, None]
                kq = gl.sum(k * q, axis=1)
                smem[4]._reinterpret(gl.float32, [EB, DK], plane).slice(i * GROUP, GROUP).store(q)
                smem[5]._reinterpret(gl.float32, [EB], flat).slice(i * GROUP, GROUP).store(kq)
    gl.thread_barrier()


@gluon.jit
def _vector(smem, e, DK: gl.constexpr, TILE: gl.constexpr):
    row = smem.index(e)
    x = (row.slice(0, 16).load(gl.SliceLayout(0, TILE)),)
    for i in gl.static_range(1, DK // 16):
        x = x + (row.slice(i * 16, 16).load(gl.SliceLayout(0, TILE)),)
    return x


@gluon.jit
def event_key(smem, s, e, DK: gl.constexpr, TILE: gl.constexpr):
    """Return (k, u, g) of staged event e on its parent's tile s."""
    k = _vector(smem[0], e, DK, TILE)
    v = smem[1].index(e).load(gl.SliceLayout(1, TILE))
    g = smem[2].index(e).load(gl.SliceLayout(1, TILE))
    beta = smem[3].index(e).load(gl.SliceLayout(1, TILE))
    return k, step_update(step_dot(s, k, DK // 16), v, g, beta), g


@gluon.jit
def event_output(smem, s, e, u, g, DK: gl.constexpr, TILE: gl.constexpr):
    """Return the output rows of staged event e."""
    q = _vector(smem[4], e, DK, TILE)
    kq = smem[5].index(e).load(gl.SliceLayout(1, TILE))
    return step_output(step_dot(s, q, DK // 16), u, g, kq)
