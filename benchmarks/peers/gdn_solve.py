"""Re-implementations of solve-based tree verifiers, from their descriptions (Triton).

weaver_like   a launch that prepares the inverse and the mixing matrix of every head from the
              ancestor mask, a launch that applies them; state read by value tiles.
treewy_like   one fused launch a layer: a program a head, a serial loop over value tiles, forward
              substitution node by node; the previous path is committed through its factors (u, k)
              when the next verification reads the state.
bole_like     one fused launch a layer by value tiles; U = sum of (-A)^m R as a finite series.
Dots run in tf32 (fp32 inputs) unless said otherwise.
"""

import triton
import triton.language as tl


@triton.jit
def _operands(
    mixed_at, ab_at, a_log, dt_bias, table, head, live,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    ANCESTORS: tl.constexpr, DEPTHS: tl.constexpr,
):  # fmt: skip
    C: tl.constexpr = 2 * HK * DK + HV * DV
    node = tl.arange(0, 32)
    inside = node < live
    at = mixed_at + node[:, None] * C + head // (HV // HK) * DK + tl.arange(0, DK)[None, :]
    q = tl.load(at, mask=inside[:, None], other=0.0).to(tl.float32)
    k = tl.load(at + HK * DK, mask=inside[:, None], other=0.0).to(tl.float32)
    q = q * (tl.rsqrt(tl.sum(q * q, axis=1) + 1e-6) * DK**-0.5)[:, None]
    k = k * tl.rsqrt(tl.sum(k * k, axis=1) + 1e-6)[:, None]
    a = tl.load(ab_at + node * (2 * HV) + head, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(ab_at + node * (2 * HV) + HV + head, mask=inside, other=0.0).to(tl.float32)
    x = a + dt_bias
    g = -tl.exp(a_log) * tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(x)))
    depth = tl.load(table + DEPTHS + node)
    owner = tl.load(table + ANCESTORS + node[:, None] * 16 + depth[None, :])
    above = (owner == node[None, :]) & inside[:, None] & inside[None, :]
    total = tl.sum(tl.where(above, g[None, :], 0.0), axis=1)
    ratio = tl.where(above, tl.exp(tl.where(above, total[:, None] - total[None, :], 0.0)), 0.0)
    strict = above & (node[:, None] != node[None, :])
    return q, k, tl.sigmoid(b), total, ratio, strict


@triton.jit
def weaver_prepare_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, tables_ptr, inverse_ptr, mixing_ptr, gates_ptr,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    ANCESTORS: tl.constexpr, DEPTHS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    node = tl.arange(0, 32)
    a_log, dt_bias = tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)
    q, k, beta, total, ratio, strict = _operands(
        mixed_ptr, ab_ptr, a_log, dt_bias, tables_ptr, head, tl.load(tables_ptr),
        HK, HV, DK, DV, ANCESTORS, DEPTHS,
    )  # fmt: skip
    gram = tl.dot(k, tl.trans(k), input_precision=PRECISION)
    power = tl.where(strict, -beta[:, None] * gram * ratio, 0.0)
    inverse = power + tl.where(node[:, None] == node[None, :], 1.0, 0.0)
    for _ in tl.static_range(3):
        power = tl.dot(power, power, input_precision=PRECISION)
        inverse = tl.dot(inverse, power, inverse, input_precision=PRECISION)
    square = head * 1024 + node[:, None] * 32 + node[None, :]
    tl.store(inverse_ptr + square, inverse * beta[None, :])
    mixing = tl.dot(q, tl.trans(k), input_precision=PRECISION) * ratio
    tl.store(mixing_ptr + square, mixing)
    tl.store(gates_ptr + head * 32 + node, tl.exp(total))


@triton.jit
def weaver_apply_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, tables_ptr, state_ptr, inverse_ptr, mixing_ptr,
    gates_ptr, out_ptr,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0) // (DV // BV)
    value = (tl.program_id(0) % (DV // BV)) * BV + tl.arange(0, BV)
    node, column = tl.arange(0, 32), tl.arange(0, DK)
    state = tl.load(state_ptr + (head * DV + value[:, None]) * DK + column[None, :])
    inside = node < tl.load(tables_ptr)
    at = mixed_ptr + node[:, None] * C + head // (HV // HK) * DK + column[None, :]
    q = tl.load(at, mask=inside[:, None], other=0.0).to(tl.float32)
    k = tl.load(at + HK * DK, mask=inside[:, None], other=0.0).to(tl.float32)
    q = q * (tl.rsqrt(tl.sum(q * q, axis=1) + 1e-6) * DK**-0.5)[:, None]
    k = k * tl.rsqrt(tl.sum(k * k, axis=1) + 1e-6)[:, None]
    v_at = mixed_ptr + node[None, :] * C + 2 * HK * DK + head * DV + value[:, None]
    v = tl.load(v_at, mask=inside[None, :], other=0.0).to(tl.float32)
    grown = tl.load(gates_ptr + head * 32 + node)[None, :]
    square = head * 1024 + node[:, None] * 32 + node[None, :]
    rest = v - tl.dot(state, tl.trans(k), input_precision=PRECISION) * grown
    u = tl.dot(rest, tl.trans(tl.load(inverse_ptr + square)), input_precision=PRECISION)
    out = tl.dot(state, tl.trans(q), input_precision=PRECISION) * grown
    out = tl.dot(u, tl.trans(tl.load(mixing_ptr + square)), out, input_precision=PRECISION)
    at = out_ptr + (node[None, :] * HV + head) * DV + value[:, None]
    tl.store(at, out.to(out_ptr.dtype.element_ty))


@triton.jit
def series_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, tables_ptr, state_ptr, out_ptr,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
    ANCESTORS: tl.constexpr, DEPTHS: tl.constexpr, TERMS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0) // (DV // BV)
    value = (tl.program_id(0) % (DV // BV)) * BV + tl.arange(0, BV)
    node, column = tl.arange(0, 32), tl.arange(0, DK)
    live = tl.load(tables_ptr)
    state = tl.load(state_ptr + (head * DV + value[:, None]) * DK + column[None, :])
    a_log, dt_bias = tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)
    q, k, beta, total, ratio, strict = _operands(
        mixed_ptr, ab_ptr, a_log, dt_bias, tables_ptr, head, live,
        HK, HV, DK, DV, ANCESTORS, DEPTHS,
    )  # fmt: skip
    v_at = mixed_ptr + node[None, :] * C + 2 * HK * DK + head * DV + value[:, None]
    v = tl.load(v_at, mask=(node < live)[None, :], other=0.0).to(tl.float32)
    gram = tl.dot(k, tl.trans(k), input_precision=PRECISION)
    power = tl.trans(tl.where(strict, -beta[:, None] * gram * ratio, 0.0))
    grown = tl.exp(total)[None, :]
    read = tl.dot(state, tl.trans(k), input_precision=PRECISION) * grown
    rest = (v - read) * beta[None, :]
    u = rest
    for _ in range(TERMS):
        u = tl.dot(u, power, rest, input_precision=PRECISION)
    mixing = tl.dot(q, tl.trans(k), input_precision=PRECISION) * ratio
    out = tl.dot(state, tl.trans(q), input_precision=PRECISION) * grown
    out = tl.dot(u, tl.trans(mixing), out, input_precision=PRECISION)
    at = out_ptr + (node[None, :] * HV + head) * DV + value[:, None]
    tl.store(at, out.to(out_ptr.dtype.element_ty))


@triton.jit
def treewy_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, tables_ptr, path_ptr, state_ptr, stash_u_ptr,
    stash_k_ptr, stash_g_ptr, out_ptr,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
    ANCESTORS: tl.constexpr, DEPTHS: tl.constexpr, COMMIT: tl.constexpr, VERIFY: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0)
    node, column = tl.arange(0, 32), tl.arange(0, DK)
    live, count = tl.load(tables_ptr), tl.load(path_ptr + 2)
    a_log, dt_bias = tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)
    q, k, beta, total, ratio, strict = _operands(
        mixed_ptr, ab_ptr, a_log, dt_bias, tables_ptr, head, live,
        HK, HV, DK, DV, ANCESTORS, DEPTHS,
    )  # fmt: skip
    factor = tl.trans(tl.where(
        strict, beta[:, None] * tl.dot(k, tl.trans(k), input_precision=PRECISION) * ratio, 0.0
    ))  # fmt: skip
    mixing = tl.trans(tl.dot(q, tl.trans(k), input_precision=PRECISION) * ratio)
    grown = tl.exp(total)[None, :]
    step = tl.arange(0, 16)
    taken = tl.load(path_ptr + 16 + step, mask=step < count, other=0)
    last = tl.load(path_ptr + 16 + count - 1)
    end = tl.load(stash_g_ptr + head * 32 + last)
    weight = tl.load(stash_g_ptr + head * 32 + taken)
    weight = tl.where(step < count, tl.exp(end - weight), 0.0)
    old_k = tl.load(stash_k_ptr + (head * 32 + taken)[:, None] * DK + column[None, :])
    tl.debug_barrier()
    for tile in range(DV // BV):
        value = tile * BV + tl.arange(0, BV)
        state_at = state_ptr + (head * DV + value[:, None]) * DK + column[None, :]
        state = tl.load(state_at)
        stash_at = stash_u_ptr + head * 32 * DV + value[:, None]
        if COMMIT:
            old_u = tl.load(stash_at + taken[None, :] * DV) * weight[None, :]
            state = tl.dot(old_u, old_k, state * tl.exp(end), input_precision=PRECISION)
            tl.store(state_at, state)
        if VERIFY:
            v_at = mixed_ptr + node[None, :] * C + 2 * HK * DK + head * DV + value[:, None]
            v = tl.load(v_at, mask=(node < live)[None, :], other=0.0).to(tl.float32)
            read = tl.dot(state, tl.trans(k), input_precision=PRECISION) * grown
            u = (v - read) * beta[None, :]
            for i in range(1, live):
                row = tl.sum(tl.where(node[None, :] == i, factor, 0.0), axis=1)
                known = tl.sum(u * row[None, :], axis=1)
                u = tl.where(node[None, :] == i, u - known[:, None], u)
            out = tl.dot(state, tl.trans(q), input_precision=PRECISION) * grown
            out = tl.dot(u, mixing, out, input_precision=PRECISION)
            at = out_ptr + (node[None, :] * HV + head) * DV + value[:, None]
            tl.store(at, out.to(out_ptr.dtype.element_ty))
            tl.debug_barrier()
            tl.store(stash_at + node[None, :] * DV, u)
    if VERIFY:
        tl.debug_barrier()
        tl.store(stash_k_ptr + (head * 32 + node)[:, None] * DK + column[None, :], k)
        tl.store(stash_g_ptr + head * 32 + node, total)
