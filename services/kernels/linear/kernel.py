"""Weight-bound products on the device: the library where the table allows it, else fixed tiles."""

from functools import cache

import torch
import triton

from services.kernels.arch import device_arch
from services.kernels.compile_case import CompileCase
from services.kernels.linear import reference, table
from services.kernels.linear.cases import LUMO_TINY, QWEN_27B
from services.kernels.linear.kernel_fixed import fixed_tile_kernel, sum_slices_kernel

FIXED_ROWS = True
SUM_BLOCK = 1024
MAX_DECODE_ROWS = 128


def linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Do what linear.linear says."""
    rows = x.shape[0]
    decodes = rows % 32 == 0 and rows <= MAX_DECODE_ROWS
    if decodes and not library_serves(x.device, weight):
        fixed_linear(x, weight, out)
    else:
        library_linear(x, weight, out)


def library_serves(device: torch.device, weight: torch.Tensor) -> bool:
    """Say whether the table allows the library's product for this weight."""
    key = (device_arch(device), torch.__version__)
    return tuple(weight.shape) in table.LIBRARY.get(key, ()) and weight.dtype == torch.bfloat16


def library_linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Write the product by the library; fp32 `out` takes its accumulators uncast."""
    if out.dtype == x.dtype:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.mm(x, weight.t(), out_dtype=out.dtype, out=out)


@cache
def _slices(device: torch.device, size: int) -> torch.Tensor:
    """Return scratch for the slices of K; warm-up allocates it, all layers share it."""
    return torch.empty(size, dtype=torch.float32, device=device)


def fixed_linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Write the product by fixed tiles."""
    rows, (features, width) = x.shape[0], weight.shape
    tile = table.fixed_tile(device_arch(x.device), features, width)
    target = out
    if tile.split_k > 1:
        target = _slices(x.device, tile.split_k * rows * features)
    fixed_tile_kernel[triton.cdiv(features, tile.block_n), tile.split_k](
        x, weight, target, rows, N=features, K=width, SPLIT_K=tile.split_k,
        GROUPS=triton.cdiv(rows, 32), BLOCK_N=tile.block_n, BLOCK_K=tile.block_k,
        num_warps=tile.num_warps, num_stages=tile.num_stages, enable_fp_fusion=False,
    )  # fmt: skip
    if tile.split_k > 1:
        sum_slices_kernel[(triton.cdiv(out.numel(), SUM_BLOCK),)](
            target, out, out.numel(), SPLIT_K=tile.split_k, BLOCK=SUM_BLOCK, num_warps=4
        )


def row_invariance_check(weight: torch.Tensor, rows: int) -> bool:
    """Do what linear.row_invariance_check says, on the backend that serves the weight."""
    return reference.row_invariance_check(weight, rows, linear)


def compile_cases(arch: int) -> list[CompileCase]:
    """Return the fixed tile at every weight shape, and the widest forward."""
    found = []
    for features, width in sorted({*QWEN_27B, *LUMO_TINY}):
        tile = table.fixed_tile(arch, features, width)
        for groups in (1, 4):
            constants = {"N": features, "K": width, "SPLIT_K": tile.split_k, "GROUPS": groups}
            constants |= {"BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k}
            out = "*fp32" if tile.split_k > 1 else "*bf16"
            types = {"x_ptr": "*bf16", "weight_ptr": "*bf16", "out_ptr": out, "rows": "i32"}
            name = f"linear.fixed {features}x{width} rows={32 * groups}"
            launch = (tile.num_warps, tile.num_stages)
            found.append(CompileCase(name, fixed_tile_kernel, types, constants, *launch))
    types = {"parts_ptr": "*fp32", "out_ptr": "*bf16", "size": "i32"}
    constants = {"SPLIT_K": 6, "BLOCK": SUM_BLOCK}
    found.append(CompileCase("linear.sum_slices", sum_slices_kernel, types, constants, 4, 1))
    return found
