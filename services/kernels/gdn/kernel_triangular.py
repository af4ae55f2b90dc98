"""The triangular scan of mode `fast`: outputs of all nodes from one solve on tensor cores.

With N_ij = -beta_i e^(G_i - G_j) (k_i . k_j) for strict ancestors j of i and G the decay summed
along the path, U = (I - N)^-1 R, R_i = beta_i (v_i - e^(G_i) S k_i), and
o_i = e^(G_i) S q_i + sum over ancestors and self of e^(G_i - G_j) (q_i . k_j) u_j.
N is nilpotent (paths have at most 16 nodes): (I - N)^-1 = (I + N)(I + N^2)(I + N^4)(I + N^8).
The state is split in two bf16 parts, k and q are bf16 as they come: products are exact.
Outputs agree with the exact scan to bf16 rounding, not bit for bit; no state comes from here.
"""

from typing import Any, Final

import torch
import triton
import triton.language as tl

from services.kernels import tree_tables
from services.kernels.compile_case import CompileCase
from services.kernels.gdn.kernel_step import decay_gate, exp32, inverse_norm

ROWS: Final = 16
WARPS: Final = 4


@triton.jit
def _split_dot(hi, mid, x, PARTS: tl.constexpr):
    product = tl.dot(hi, tl.trans(x), input_precision="ieee")
    if PARTS == 2:
        product = tl.dot(mid, tl.trans(x), product, input_precision="ieee")
    return product


@triton.jit(do_not_specialize=["num_layers", "layer"])
def triangular_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, tables_ptr, out_ptr,
    num_layers, layer,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, T: tl.constexpr,
    BV: tl.constexpr, TABLE_WORDS: tl.constexpr, ANCESTORS: tl.constexpr, DEPTHS: tl.constexpr,
    PARTS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the outputs of every node for BV value rows of one head; grid (heads * tiles, B)."""
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0) // (DV // BV)
    row0 = (tl.program_id(0) % (DV // BV)) * BV
    table = tables_ptr + tl.program_id(1) * TABLE_WORDS
    node = tl.arange(0, 32)
    column = tl.arange(0, DK)
    value = tl.arange(0, BV)
    live = tl.load(table)
    slot = tl.load(table + 2).to(tl.int64)
    active = tl.load(words_ptr + slot * 16 + 2)
    state_ptr = recurrent_ptr + ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK)
    state = tl.load(state_ptr + (head * DV + row0 + value[:, None]) * DK + column[None, :])
    row = (slot * num_layers + layer) * 32 + node
    inside = node < live
    at = mixed_ptr + row[:, None] * C + head // (HV // HK) * DK + column[None, :]
    q = tl.load(at, mask=inside[:, None], other=0.0)
    k = tl.load(at + HK * DK, mask=inside[:, None], other=0.0)
    v_at = mixed_ptr + row[None, :] * C + 2 * HK * DK + head * DV + row0 + value[:, None]
    v = tl.load(v_at, mask=inside[None, :], other=0.0).to(tl.float32)
    a = tl.load(ab_ptr + row * (2 * HV) + head, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(ab_ptr + row * (2 * HV) + HV + head, mask=inside, other=0.0).to(tl.float32)
    depth = tl.load(table + DEPTHS + node)
    owner = tl.load(table + ANCESTORS + node[:, None] * 16 + depth[None, :])
    above = (owner == node[None, :]) & inside[:, None] & inside[None, :]
    k_norm = inverse_norm(k.to(tl.float32))
    q_norm = inverse_norm(q.to(tl.float32)) * DK**-0.5
    g = tl.log(decay_gate(a, tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)))
    beta = tl.sigmoid(b)
    total = tl.sum(tl.where(above, g[None, :], 0.0), axis=1)
    ratio = tl.where(above, total[:, None] - total[None, :], 0.0)
    ratio = tl.where(above, exp32(ratio), 0.0)
    gram = tl.dot(k, tl.trans(k), input_precision="ieee") * (k_norm[:, None] * k_norm[None, :])
    cross = tl.dot(q, tl.trans(k), input_precision="ieee") * (q_norm[:, None] * k_norm[None, :])
    strict = above & (node[:, None] != node[None, :])
    power = tl.trans(tl.where(strict, -beta[:, None] * gram * ratio, 0.0))
    mixing = tl.trans(cross * ratio)
    hi = state.to(k.dtype)
    mid = (state - hi.to(tl.float32)).to(k.dtype)
    grown = exp32(total)
    read = _split_dot(hi, mid, k, PARTS) * (k_norm * grown)[None, :]
    u = (v - read) * beta[None, :]
    for i in tl.static_range(4):
        u = tl.dot(u, power, u, input_precision=PRECISION)
        if i < 3:
            power = tl.dot(power, power, input_precision=PRECISION)
    out = _split_dot(hi, mid, q, PARTS) * (q_norm * grown)[None, :]
    out = tl.dot(u, mixing, out, input_precision=PRECISION)
    out_at = out_ptr + ((tl.program_id(1) * T + node[None, :]) * HV + head) * DV
    out = tl.where(inside[None, :], out, 0.0).to(out_ptr.dtype.element_ty)
    tl.store(out_at + row0 + value[:, None], out, mask=node[None, :] < T)


def triangular(operands: tuple[torch.Tensor, ...], layer: int) -> None:
    """Launch the triangular scan; operands as one_pass takes them."""
    mixed, recurrent, block, out = operands[0], operands[4], operands[6], operands[7]
    num_heads, dv, dk = recurrent.shape[3:]
    rows = min(ROWS, dv)
    half = mixed.dtype == torch.bfloat16
    triangular_kernel[(num_heads * dv // rows, block.shape[0])](
        *operands,
        recurrent.shape[2],
        layer,
        HK=(mixed.shape[-1] - num_heads * dv) // (2 * dk),
        HV=num_heads,
        DK=dk,
        DV=dv,
        T=out.shape[0] // block.shape[0],
        BV=rows,
        TABLE_WORDS=block.stride(0),
        ANCESTORS=tree_tables.ANCESTORS,
        DEPTHS=tree_tables.DEPTHS,
        PARTS=2 if half else 1,
        PRECISION="tf32x3" if half else "ieee",
        num_warps=WARPS,
    )


def compile_cases(arch: int) -> list[CompileCase]:
    """Return the triangular scan at the 27B shape."""
    types = dict.fromkeys(("mixed_ptr", "ab_ptr", "out_ptr"), "*bf16")
    types |= dict.fromkeys(("a_log_ptr", "dt_bias_ptr", "recurrent_ptr"), "*fp32")
    types |= {"words_ptr": "*i32", "tables_ptr": "*i32", "num_layers": "i32", "layer": "i32"}
    constants: dict[str, Any] = {"HK": 16, "HV": 48, "DK": 128, "DV": 128, "T": 32, "BV": ROWS}
    constants |= {"TABLE_WORDS": 2048, "PARTS": 2, "PRECISION": "tf32x3"}
    constants |= {"ANCESTORS": tree_tables.ANCESTORS, "DEPTHS": tree_tables.DEPTHS}
    case = CompileCase("gdn.triangular 27B", triangular_kernel, types, constants, WARPS)
    return [case]
