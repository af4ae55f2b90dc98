"""The triangular scan of mode `fast`: outputs of all nodes from one solve on tensor cores.

With G the decay summed along the path, k' = e^G k, q' = e^G q, N_ij = -beta_i e^(G_i - G_j)
(k_i . k_j) for strict ancestors j of i and M_ij = e^(G_i - G_j) (q_i . k_j) for ancestors and self,
    o = S q' + M (I - N)^-1 beta (v - S k') = S (q' - W k') + W v, W = M (I - N)^-1 beta.
N is nilpotent (paths have at most 16 nodes): (I - N)^-1 = (I + N)(I + N^2)(I + N^4)(I + N^8).
A first launch makes W and the queries q' - W k' of every head; a second one reads the state, which
it fetches while the first still runs. Dots are split: three tf32 or bf16 products for one.
Outputs agree with the exact scan to bf16 rounding, not bit for bit; no state comes from here.
"""

from functools import cache
from typing import Any, Final

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from services.kernels import tree_tables
from services.kernels.compile_case import CompileCase
from services.kernels.gdn.kernel_step import beta_gate, decay_gate, exp32, inverse_norm

ROWS: Final = 64
WARPS: Final = 8


@triton.jit(do_not_specialize=["num_layers", "layer"])
def prepare_kernel(
    mixed_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, tables_ptr, query_ptr, weight_ptr, num_layers, layer,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    TABLE_WORDS: tl.constexpr, ANCESTORS: tl.constexpr, DEPTHS: tl.constexpr,
    PRECISION: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Write the queries [B, Hv, 32, dk] and W [B, Hv, 32, 32] of one head; grid (heads, B)."""
    if OVERLAP:
        gdc_launch_dependents()
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0)
    table = tables_ptr + tl.program_id(1) * TABLE_WORDS
    node, column = tl.arange(0, 32), tl.arange(0, DK)
    inside = node < tl.load(table)
    row = (tl.load(table + 2).to(tl.int64) * num_layers + layer) * 32 + node
    at = mixed_ptr + row[:, None] * C + head // (HV // HK) * DK + column[None, :]
    q = tl.load(at, mask=inside[:, None], other=0.0)
    k = tl.load(at + HK * DK, mask=inside[:, None], other=0.0)
    a = tl.load(ab_ptr + row * (2 * HV) + head, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(ab_ptr + row * (2 * HV) + HV + head, mask=inside, other=0.0).to(tl.float32)
    depth = tl.load(table + DEPTHS + node)
    owner = tl.load(table + ANCESTORS + node[:, None] * 16 + depth[None, :])
    above = (owner == node[None, :]) & inside[:, None] & inside[None, :]
    same = node[:, None] == node[None, :]
    g = tl.log(decay_gate(a, tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)))
    beta = beta_gate(b)
    total = tl.sum(tl.where(above, g[None, :], 0.0), axis=1)
    ratio = tl.where(above, exp32(tl.where(above, total[:, None] - total[None, :], 0.0)), 0.0)
    k_norm = inverse_norm(k.to(tl.float32))
    q_norm = inverse_norm(q.to(tl.float32)) * DK**-0.5
    gram = tl.dot(k, tl.trans(k), input_precision="ieee") * (k_norm[:, None] * k_norm[None, :])
    mixing = tl.dot(q, tl.trans(k), input_precision="ieee") * (q_norm[:, None] * k_norm[None, :])
    power = tl.where(same, 0.0, -beta[:, None] * gram * ratio)
    inverse = power + tl.where(same, 1.0, 0.0)
    for _ in tl.static_range(3):
        power = tl.dot(power, power, input_precision=PRECISION)
        inverse = tl.dot(inverse, power, inverse, input_precision=PRECISION)
    weight = tl.dot(mixing * ratio, inverse, input_precision=PRECISION) * beta[None, :]
    grown = exp32(total)
    keys = k.to(tl.float32) * (k_norm * grown)[:, None]
    query = q.to(tl.float32) * (q_norm * grown)[:, None]
    query -= tl.dot(weight, keys, input_precision=PRECISION)
    base = (tl.program_id(1) * HV + head) * 32 + node[:, None]
    tl.store(query_ptr + base * DK + column[None, :], query)
    tl.store(weight_ptr + base * 32 + node[None, :], weight)


@triton.jit(do_not_specialize=["num_layers", "layer"])
def apply_kernel(
    mixed_ptr, recurrent_ptr, words_ptr, tables_ptr, query_ptr, weight_ptr, out_ptr, num_layers,
    layer,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, T: tl.constexpr,
    BV: tl.constexpr, TABLE_WORDS: tl.constexpr, PRECISION: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Write the outputs of every node for BV value rows of one head; grid (heads * tiles, B)."""
    C: tl.constexpr = 2 * HK * DK + HV * DV
    head = tl.program_id(0) // (DV // BV)
    value = (tl.program_id(0) % (DV // BV)) * BV + tl.arange(0, BV)
    node, column = tl.arange(0, 32), tl.arange(0, DK)
    table = tables_ptr + tl.program_id(1) * TABLE_WORDS
    inside = node < tl.load(table)
    slot = tl.load(table + 2).to(tl.int64)
    active = tl.load(words_ptr + slot * 16 + 2)
    state_ptr = recurrent_ptr + ((slot * 2 + active) * num_layers + layer) * (HV * DV * DK)
    state = tl.load(state_ptr + (head * DV + value[:, None]) * DK + column[None, :])
    row = (slot * num_layers + layer) * 32 + node
    v_at = mixed_ptr + row[None, :] * C + 2 * HK * DK + head * DV + value[:, None]
    v = tl.load(v_at, mask=inside[None, :], other=0.0).to(tl.float32)
    if OVERLAP:
        gdc_wait()
    base = (tl.program_id(1) * HV + head) * 32
    query = tl.load(query_ptr + (base + node[None, :]) * DK + column[:, None])
    weight = tl.load(weight_ptr + (base + node[None, :]) * 32 + node[:, None])
    out = tl.dot(state, query, input_precision=PRECISION)
    out = tl.dot(v, weight, out, input_precision=PRECISION)
    out = tl.where(inside[None, :], out, 0.0).to(out_ptr.dtype.element_ty)
    out_at = out_ptr + ((tl.program_id(1) * T + node[None, :]) * HV + head) * DV + value[:, None]
    tl.store(out_at, out, mask=node[None, :] < T)


def triangular(operands: tuple[torch.Tensor, ...], layer: int) -> None:
    """Launch the triangular scan; operands as one_pass takes them."""
    mixed, ab, a_log, dt_bias, recurrent, words, block, out = operands
    num_heads, dv, dk = recurrent.shape[3:]
    batch, layers = block.shape[0], recurrent.shape[2]
    query, weight = _scratch(out.device, batch * num_heads, dk)
    rows = min(ROWS, dv)
    common: dict[str, Any] = {
        "HK": (mixed.shape[-1] - num_heads * dv) // (2 * dk),
        "HV": num_heads,
        "DK": dk,
        "DV": dv,
        "TABLE_WORDS": block.stride(0),
        "OVERLAP": out.is_cuda,
        "num_warps": WARPS,
    }
    prepare_kernel[(num_heads, batch)](
        mixed,
        ab,
        a_log,
        dt_bias,
        block,
        query,
        weight,
        layers,
        layer,
        ANCESTORS=tree_tables.ANCESTORS,
        DEPTHS=tree_tables.DEPTHS,
        PRECISION="tf32x3" if out.is_cuda else "ieee",
        **common,
    )
    if out.is_cuda:
        common["launch_pdl"] = True
    apply_kernel[(num_heads * dv // rows, batch)](
        mixed,
        recurrent,
        words,
        block,
        query,
        weight,
        out,
        layers,
        layer,
        T=out.shape[0] // batch,
        BV=rows,
        PRECISION="bf16x3" if out.is_cuda else "ieee",
        **common,
    )


@cache
def _scratch(device: torch.device, heads: int, dk: int) -> tuple[torch.Tensor, torch.Tensor]:
    sizes = (heads * 32, dk), (heads * 32, 32)
    query, weight = (torch.empty(size, dtype=torch.float32, device=device) for size in sizes)
    return query, weight


def compile_cases(arch: int) -> list[CompileCase]:
    """Return the two launches at the 27B shape."""
    types = {
        **dict.fromkeys(("mixed_ptr", "ab_ptr", "out_ptr"), "*bf16"),
        **dict.fromkeys(("words_ptr", "tables_ptr"), "*i32"),
        **dict.fromkeys(("a_log_ptr", "dt_bias_ptr", "recurrent_ptr"), "*fp32"),
        **dict.fromkeys(("query_ptr", "weight_ptr"), "*fp32"),
        **dict.fromkeys(("num_layers", "layer"), "i32"),
    }
    common = {"HK": 16, "HV": 48, "DK": 128, "DV": 128, "TABLE_WORDS": 2048}
    common |= {"OVERLAP": True}
    masks = {"ANCESTORS": tree_tables.ANCESTORS, "DEPTHS": tree_tables.DEPTHS}
    tile = {"T": 32, "BV": ROWS}
    launches = {
        "prepare": (prepare_kernel, {**common, **masks, "PRECISION": "tf32x3"}),
        "apply": (apply_kernel, {**common, **tile, "PRECISION": "bf16x3"}),
    }
    return [
        CompileCase(
            f"gdn.triangular {name} 27B",
            launch,
            {key: kind for key, kind in types.items() if key in launch.arg_names},
            constants,
            WARPS,
        )
        for name, (launch, constants) in launches.items()
    ]
