"""Exact kernels along one line of nodes: the prompt chain and the replay of an accepted path."""

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
    stage,
    store_state,
    tile_layout,
)


@gluon.jit(do_not_specialize=["num_layers", "layer", "length", "c8", "ab_stride"])
def chain_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, slots_ptr, counts_ptr,
    out_ptr, num_layers, layer, length, c8, ab_stride,
    HK: gl.constexpr, HV: gl.constexpr, DK: gl.constexpr, DV: gl.constexpr, BV: gl.constexpr,
    EB: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """Run `counts` of `length` rows in order and store the state; grid (heads * tiles, batch)."""
    TILE: gl.constexpr = tile_layout(W)
    head = gl.program_id(0) // (DV // BV)
    row0 = (gl.program_id(0) % (DV // BV)) * BV
    batch = gl.program_id(1)
    slot = gl.load(slots_ptr + batch).to(gl.int64)
    count = gl.load(counts_ptr + batch)
    active = gl.load(words_ptr + slot * 16 + 2)
    state_ptr = recurrent_ptr + ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK)
    state_ptr += (head * DV + row0) * DK
    smem = allocate(EB, DK, BV, True)
    C = c8 * 8
    mixed_at = mixed_ptr + (batch * length).to(gl.int64) * C
    ab_at = ab_ptr + (batch * length).to(gl.int64) * ab_stride
    a_log = gl.load(a_log_ptr + head)
    dt_bias = gl.load(dt_bias_ptr + head)
    rows = gl.arange(0, BV, gl.SliceLayout(1, TILE))
    out_at = out_ptr + (batch * length * HV + head) * DV + row0 + rows
    s = load_state(state_ptr, BV, DK, TILE)
    for first in range(0, count, EB):
        raw = fetch(
            mixed_at, ab_at, slots_ptr, first, count, head, row0, C, ab_stride,
            HK, HV, DK, DV, BV, EB, W, False, True,
        )  # fmt: skip
        stage(smem, raw, a_log, dt_bias, count - first, DK, BV, EB, True)
        for e in range(0, gl.minimum(EB, count - first)):
            o = event_output(smem, s, load_query(smem, e, DK, TILE), e, DK, TILE)
            gl.store(out_at + (first + e) * (HV * DV), o.to(out_ptr.dtype.element_ty))
            s = event_state(smem, s, load_key(smem, e, DK, TILE), e, DK, TILE)
    store_state(state_ptr, s, BV, DK, TILE)
    for row in range(count, length):
        gl.store(out_at + row * (HV * DV), (rows * 0).to(out_ptr.dtype.element_ty))


@gluon.jit(do_not_specialize=["num_layers"])
def replay_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, path_ptr, slots_ptr,
    num_layers,
    HK: gl.constexpr, HV: gl.constexpr, DK: gl.constexpr, DV: gl.constexpr, BV: gl.constexpr,
    W: gl.constexpr,
):  # fmt: skip
    """Advance one tile of one layer along the accepted path, active set -> other set.

    Grid (heads * tiles, layers, batch); length and nodes are read on the device.
    """
    TILE: gl.constexpr = tile_layout(W)
    C: gl.constexpr = 2 * HK * DK + HV * DV
    head = gl.program_id(0) // (DV // BV)
    row0 = (gl.program_id(0) % (DV // BV)) * BV
    layer = gl.program_id(1)
    slot = gl.load(slots_ptr + gl.program_id(2)).to(gl.int64)
    words = words_ptr + slot * 16
    path = path_ptr + slot * 64
    active = gl.load(words + 2)
    count = gl.load(path + 2)
    if (gl.load(words) != gl.load(path)) | (gl.load(words + 1) != gl.load(path + 1)):
        return
    tile = (head * DV + row0) * DK
    source = ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK) + tile
    target = ((slot * 2 + 1 - active) * num_layers + layer) * (HV * DV * DK) + tile
    smem = allocate(16, DK, BV, False)
    ring = (slot * num_layers + layer) * 32
    raw = fetch(
        mixed_ptr + ring * C, ab_ptr + ring * (2 * HV), path + 16, 0, count, head, row0, C, 2 * HV,
        HK, HV, DK, DV, BV, 16, W, True, False,
    )  # fmt: skip
    s = load_state(recurrent_ptr + source, BV, DK, TILE)
    a_log = gl.load(a_log_ptr + layer * HV + head)
    dt_bias = gl.load(dt_bias_ptr + layer * HV + head)
    stage(smem, raw, a_log, dt_bias, count, DK, BV, 16, False)
    for e in range(0, count):
        s = event_state(smem, s, load_key(smem, e, DK, TILE), e, DK, TILE)
    store_state(recurrent_ptr + target, s, BV, DK, TILE)
