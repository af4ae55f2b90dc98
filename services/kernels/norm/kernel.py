"""Row-local operations on the device: launches."""

from typing import Any

import torch
import triton

from services.contract.limits import MAX_ROWS, TABLE_WORDS
from services.kernels.compile_case import CompileCase
from services.kernels.norm.kernel_rope import qk_norm_rope_kernel
from services.kernels.norm.kernel_rows import (
    add_rms_norm_kernel,
    gated_norm_kernel,
    rms_norm_kernel,
    sigmoid_gate_kernel,
    silu_mul_kernel,
)
from services.kernels.tree_tables import COMMITTED_LENGTH, DEPTHS, LIVE, SLOT, TableViews

_EXACT = {"num_stages": 1, "enable_fp_fusion": False}
_WIDE, _NARROW = {"num_warps": 8, **_EXACT}, {"num_warps": 2, **_EXACT}
_MIDDLE = {"num_warps": 4, **_EXACT}
SILU_BLOCK = 1024
GATED_HEADS = 8


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor) -> None:
    """Do what norm.rms_norm says."""
    rows, width = out.shape
    shape = {"STRIDE": x.stride(0), "N": width, "BLOCK": triton.next_power_of_2(width)}
    rms_norm_kernel[(rows,)](x, weight, out, eps, **shape, **_WIDE)


def add_rms_norm(
    residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor
) -> None:
    """Do what norm.add_rms_norm says."""
    rows, width = out.shape
    shape = {"STRIDE": x.stride(0), "N": width, "BLOCK": triton.next_power_of_2(width)}
    add_rms_norm_kernel[(rows,)](residual, x, weight, out, eps, **shape, **_WIDE)


def gated_norm(
    core: torch.Tensor,
    z: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    activation: str,
    out: torch.Tensor,
) -> None:
    """Do what norm.gated_norm says."""
    rows, heads, dim = core.shape
    gated_norm_kernel[rows, triton.cdiv(heads, GATED_HEADS)](
        core, z, weight, out, eps, SILU={"silu": True, "sigmoid": False}[activation],
        STRIDE=z.stride(0), HV=heads, DV=dim, HEADS=GATED_HEADS, **_MIDDLE,
    )  # fmt: skip


def qk_norm_rope_ring(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    inv_freq: torch.Tensor,
    eps: float,
    tables: TableViews,
    kv_ring: torch.Tensor,
    layer: int,
    q: torch.Tensor,
) -> None:
    """Do what norm.qk_norm_rope_ring says."""
    block, ring = tables.block, kv_ring[:, layer]
    words = (block[:, LIVE:], block[:, COMMITTED_LENGTH:], block[:, SLOT:], block[:, DEPTHS:])
    norms = (q_weight, k_weight, inv_freq, eps)
    places = {"TREE": True, "WORDS": TABLE_WORDS, "SLOT_STRIDE": ring.stride(0), "MAX_PAGES": 0}
    _norm_rope(qkv, norms, words, block, ring, ring.shape[2], places, q)


def qk_norm_rope_pages(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    inv_freq: torch.Tensor,
    eps: float,
    slots: torch.Tensor,
    starts: torch.Tensor,
    counts: torch.Tensor,
    page_table: torch.Tensor,
    kv: torch.Tensor,
    q: torch.Tensor,
) -> None:
    """Do what norm.qk_norm_rope_pages says."""
    words, norms = (counts, starts, slots, starts), (q_weight, k_weight, inv_freq, eps)
    places = {"TREE": False, "WORDS": 1, "SLOT_STRIDE": 0, "MAX_PAGES": page_table.shape[1]}
    _norm_rope(qkv, norms, words, page_table, kv, kv.shape[2], places, q)


def _norm_rope(
    qkv: torch.Tensor,
    norms: tuple[torch.Tensor, torch.Tensor, torch.Tensor, float],
    words: tuple[torch.Tensor, ...],
    page_table: torch.Tensor,
    store: torch.Tensor,
    kv_heads: int,
    places: dict[str, Any],
    q: torch.Tensor,
) -> None:
    rows, heads, dim = q.shape
    q_weight, k_weight, inv_freq, eps = norms
    qk_norm_rope_kernel[rows, heads + 2 * kv_heads](
        qkv, q_weight, k_weight, inv_freq, *words, page_table, store, q, eps,
        rows // words[0].shape[0], **places, STRIDE=qkv.stride(0), ROT=2 * inv_freq.shape[0],
        HQ=heads, HKV=kv_heads, D=dim, **_NARROW,
    )  # fmt: skip


def sigmoid_gate(attn: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor) -> None:
    """Do what norm.sigmoid_gate says."""
    rows, heads, dim = attn.shape
    shape = {"STRIDE": qkv.stride(0), "HQ": heads, "D": dim}
    sigmoid_gate_kernel[rows, heads](attn, qkv, out, **shape, **_NARROW)


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    """Do what norm.silu_mul says."""
    rows, width = out.shape
    shape = {"STRIDE": gate_up.stride(0), "F": width, "BLOCK": SILU_BLOCK}
    silu_mul_kernel[rows, triton.cdiv(width, SILU_BLOCK)](gate_up, out, **shape, **_MIDDLE)


def compile_cases(arch: int) -> list[CompileCase]:
    """Return the kernels at the 27B shape and the embedded model's."""
    found = []
    for hidden, width, heads, kv_heads, dim, hv, dv in (
        (5120, 17408, 24, 4, 256, 48, 128),
        (256, 640, 4, 2, 64, 6, 64),
    ):
        block = {"STRIDE": hidden, "N": hidden, "BLOCK": triton.next_power_of_2(hidden)}
        rope = {"ROT": dim // 4, "HQ": heads, "HKV": kv_heads, "D": dim}
        qkv = {"STRIDE": 2 * (heads + kv_heads) * dim}
        ring = {"TREE": True, "WORDS": TABLE_WORDS, "MAX_PAGES": 0}
        ring["SLOT_STRIDE"] = 2 * kv_heads * MAX_ROWS * dim
        pages = {"TREE": False, "WORDS": 1, "SLOT_STRIDE": 0, "MAX_PAGES": 1024}
        gated = {"SILU": True, "STRIDE": hv * dv, "HV": hv, "DV": dv, "HEADS": GATED_HEADS}
        gate = {"HQ": heads, "D": dim} | qkv
        silu = {"STRIDE": 2 * width, "F": width, "BLOCK": SILU_BLOCK}
        for name, kernel, constants, launch in (
            ("rms_norm", rms_norm_kernel, block, _WIDE),
            ("add_rms_norm", add_rms_norm_kernel, block, _WIDE),
            ("gated_norm", gated_norm_kernel, gated, _MIDDLE),
            ("qk_norm_rope ring", qk_norm_rope_kernel, rope | qkv | ring, _NARROW),
            ("qk_norm_rope pages", qk_norm_rope_kernel, rope | qkv | pages, _NARROW),
            ("sigmoid_gate", sigmoid_gate_kernel, gate, _NARROW),
            ("silu_mul", silu_mul_kernel, silu, _MIDDLE),
        ):
            types = {key: _type(key) for key in kernel.arg_names if not key.isupper()}
            title = f"norm.{name} d={hidden}"
            found.append(CompileCase(title, kernel, types, constants, launch["num_warps"], 1))
    return found


def _type(name: str) -> str:
    if name in ("eps", "rows"):
        return {"eps": "fp32", "rows": "i32"}[name]
    if name in ("live_ptr", "length_ptr", "slot_ptr", "depth_ptr", "page_ptr"):
        return "*i32"
    return "*fp32" if "weight" in name or name == "freq_ptr" else "*bf16"
