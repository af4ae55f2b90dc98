"""The triangular scan of mode `fast`: outputs of all nodes from one solve on tensor cores.

With G the decay summed along the path, k' = e^G k, q' = e^G q, N_ij = -beta_i e^(G_i - G_j)
(k_i . k_j) for strict ancestors j of i and M_ij = e^(G_i - G_j) (q_i . k_j) for ancestors and self,
    o = S q' + M (I - N)^-1 beta (v - S k') = S (q' - W k') + W v, W = M (I - N)^-1 beta.
N is nilpotent (paths have at most 16 nodes): (I - N)^-1 = (I + N)(I + N^2)(I + N^4)(I + N^8), and
W is made from the left, so a power is needed once. All of it is one launch: the state tile is on
its way while W is made. Products are split: three of bf16 parts for one.
Outputs agree with the exact scan to bf16 rounding, not bit for bit; no state comes from here.
"""

from typing import Any, Final

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from services.kernels import tree_tables
from services.kernels.arch import HOPPER, SMALL, device_arch
from services.kernels.compile_case import CompileCase
from services.kernels.gdn.kernel_step import inverse_norm

# Value rows of a program. Where there are no warpgroup products, a larger tile spills.
ROWS: Final = {HOPPER: 128, SMALL: 16}
WARPS: Final = 8


@triton.jit
def _product(x, y, total, SPLIT: tl.constexpr):
    """Return x y + total; split, three bf16 products stand for one."""
    if SPLIT:
        x_hi, y_hi = x.to(tl.bfloat16), y.to(tl.bfloat16)
        x_lo = (x - x_hi.to(tl.float32)).to(tl.bfloat16)
        y_lo = (y - y_hi.to(tl.float32)).to(tl.bfloat16)
        return tl.dot(x_hi, y_hi, tl.dot(x_hi, y_lo, tl.dot(x_lo, y_hi, total)))
    else:
        return tl.dot(x, y, total, input_precision="ieee")


@triton.jit(do_not_specialize=["num_layers", "layer"])
def triangular_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, recurrent_ptr, words_ptr, tables_ptr, out_ptr,
    num_layers, layer,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, T: tl.constexpr,
    BV: tl.constexpr, TABLE_WORDS: tl.constexpr, ANCESTORS: tl.constexpr, DEPTHS: tl.constexpr,
    SPLIT: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Write the outputs of every node for BV value rows of one head; grid (heads * tiles, B)."""
    if EARLY:
        gdc_launch_dependents()
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0) // (DV // BV)
    value = (tl.program_id(0) % (DV // BV)) * BV + tl.arange(0, BV)
    table = tables_ptr + tl.program_id(1) * TABLE_WORDS
    node, column = tl.arange(0, 32), tl.arange(0, DK)
    slot = tl.load(table + 2).to(tl.int64)
    active = tl.load(words_ptr + slot * 16 + 2)
    state_ptr = recurrent_ptr + ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK)
    state = tl.load(state_ptr + (head * DV + value[:, None]) * DK + column[None, :])
    inside = node < tl.load(table)
    depth = tl.load(table + DEPTHS + node)
    owner = tl.load(table + ANCESTORS + node[:, None] * 16 + depth[None, :])
    rate = -tl.exp(tl.load(a_log_ptr + head))
    bias = tl.load(dt_bias_ptr + head)
    # The rings are the only operands that the launch before this one may write.
    if EARLY:
        gdc_wait()
    row = (slot * num_layers + layer) * 32 + node
    at = mixed_ptr + row[:, None] * C + head // (HV // HK) * DK + column[None, :]
    k = tl.load(at + HK * DK, mask=inside[:, None], other=0.0)
    q = tl.load(at, mask=inside[:, None], other=0.0)
    a = tl.load(ab_ptr + row * (2 * HV) + head, mask=inside, other=0.0).to(tl.float32) + bias
    b = tl.load(ab_ptr + row * (2 * HV) + HV + head, mask=inside, other=0.0).to(tl.float32)
    v_at = mixed_ptr + row[None, :] * C + 2 * HK * DK + head * DV + value[:, None]
    v = tl.load(v_at, mask=inside[None, :], other=0.0)
    above = (owner == node[None, :]) & inside[:, None] & inside[None, :]
    g = rate * (tl.maximum(a, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(a))))
    beta = tl.sigmoid(b)
    total = tl.sum(tl.where(above, g[None, :], 0.0), axis=1)
    ratio = tl.where(above, tl.exp(tl.where(above, total[:, None] - total[None, :], 0.0)), 0.0)
    k_norm = inverse_norm(k.to(tl.float32))
    q_norm = inverse_norm(q.to(tl.float32)) * DK**-0.5
    gram = tl.dot(k, tl.trans(k), input_precision="ieee")
    weight = tl.dot(q, tl.trans(k), input_precision="ieee")
    weight *= ratio * (q_norm[:, None] * k_norm[None, :])
    strict = above & (node[:, None] != node[None, :])
    power = tl.where(strict, gram * ratio * (-(beta * k_norm)[:, None] * k_norm[None, :]), 0.0)
    none = tl.zeros([32, 32], tl.float32)
    for i in tl.static_range(4):
        weight = _product(weight, power, weight, SPLIT)
        if i < 3:
            power = _product(power, power, none, SPLIT)
    weight *= beta[None, :]
    grown = tl.exp(total)
    keys = k.to(tl.float32) * (k_norm * grown)[:, None]
    query = q.to(tl.float32) * (q_norm * grown)[:, None]
    query = _product(-weight, keys, query, SPLIT)
    out = _product(v.to(tl.float32), tl.trans(weight), tl.zeros([BV, 32], tl.float32), SPLIT)
    out = _product(state, tl.trans(query), out, SPLIT)
    out_at = out_ptr + ((tl.program_id(1) * T + node[None, :]) * HV + head) * DV + value[:, None]
    out = tl.where(inside[None, :], out, 0.0).to(out_ptr.dtype.element_ty)
    tl.store(out_at, out, mask=node[None, :] < T)


def triangular(operands: tuple[torch.Tensor, ...], layer: int) -> None:
    """Launch the triangular scan; operands as one_pass takes them."""
    mixed, recurrent, block, out = operands[0], operands[4], operands[6], operands[7]
    num_heads, dv, dk = recurrent.shape[3:]
    rows = min(ROWS[device_arch(out.device)], dv)
    extra: dict[str, Any] = {"launch_pdl": True} if out.is_cuda else {}
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
        SPLIT=out.is_cuda,
        EARLY=out.is_cuda,
        num_warps=WARPS,
        **extra,
    )


def compile_cases(arch: int) -> list[CompileCase]:
    """Return the triangular scan at the 27B shape."""
    types = dict.fromkeys(("mixed_ptr", "ab_ptr", "out_ptr"), "*bf16")
    types |= dict.fromkeys(("a_log_ptr", "dt_bias_ptr", "recurrent_ptr"), "*fp32")
    types |= {"words_ptr": "*i32", "tables_ptr": "*i32", "num_layers": "i32", "layer": "i32"}
    constants: dict[str, Any] = {"HK": 16, "HV": 48, "DK": 128, "DV": 128, "T": 32}
    constants["BV"] = ROWS[arch]
    constants |= {"TABLE_WORDS": 2048, "SPLIT": True, "EARLY": True}
    constants |= {"ANCESTORS": tree_tables.ANCESTORS, "DEPTHS": tree_tables.DEPTHS}
    case = CompileCase("gdn.triangular 27B", triangular_kernel, types, constants, WARPS)
    return [case]
