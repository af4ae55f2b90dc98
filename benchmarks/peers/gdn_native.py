"""Re-implementation of the native path cover: every node's state is stored (Triton).

The usual fused recurrent step (decay, read, rank-one update, output; contraction left to the
compiler) runs along vertex-disjoint paths in two launches a layer; each node writes its state, a
path starts from its parent's. Committing copies the accepted node's state.
"""

import triton
import triton.language as tl


@triton.jit
def native_path_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, tables_ptr, state_ptr, nodes_ptr, out_ptr,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
    PATHS: tl.constexpr, LENGTHS: tl.constexpr, FORKS: tl.constexpr, OWN: tl.constexpr,
    LEVEL: tl.constexpr,
):  # fmt: skip
    C: tl.constexpr = 2 * HK * DK + HV * DV
    SIZE: tl.constexpr = HV * DV * DK
    head = tl.program_id(0) // (DV // BV)
    value = (tl.program_id(0) % (DV // BV)) * BV + tl.arange(0, BV)
    column = tl.arange(0, DK)
    path = tl.program_id(1)
    if (LEVEL == 1) & (path >= tl.load(tables_ptr + 4)):
        return
    tile = (head * DV + value[:, None]) * DK + column[None, :]
    nodes = tables_ptr + PATHS + path * 16
    trunk = tl.load(tables_ptr + 6)
    first = 0
    count = trunk
    state = tl.load(state_ptr + tile)
    if LEVEL == 1:
        first = tl.maximum(tl.load(tables_ptr + FORKS + path), tl.load(tables_ptr + OWN + path))
        if path == 0:
            first = trunk
        count = tl.load(tables_ptr + LENGTHS + path)
        state = tl.load(nodes_ptr + tl.load(nodes + first - 1) * SIZE + tile)
    a_log, dt_bias = tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)
    for i in range(first, count):
        node = tl.load(nodes + i)
        at = mixed_ptr + node * C + head // (HV // HK) * DK + column
        q, k = tl.load(at).to(tl.float32), tl.load(at + HK * DK).to(tl.float32)
        q = q * (tl.rsqrt(tl.sum(q * q) + 1e-6) * DK**-0.5)
        k = k * tl.rsqrt(tl.sum(k * k) + 1e-6)
        v = tl.load(mixed_ptr + node * C + 2 * HK * DK + head * DV + value).to(tl.float32)
        x = tl.load(ab_ptr + node * (2 * HV) + head).to(tl.float32) + dt_bias
        beta = tl.sigmoid(tl.load(ab_ptr + node * (2 * HV) + HV + head).to(tl.float32))
        state *= tl.exp(-tl.exp(a_log) * tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(x))))
        delta = (v - tl.sum(state * k[None, :], axis=1)) * beta
        state += delta[:, None] * k[None, :]
        out = tl.sum(state * q[None, :], axis=1)
        tl.store(out_ptr + (node * HV + head) * DV + value, out.to(out_ptr.dtype.element_ty))
        tl.store(nodes_ptr + node * SIZE + tile, state)
