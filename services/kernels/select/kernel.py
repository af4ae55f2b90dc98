"""Launch ordered selection in Triton."""

from functools import cache

import torch

from services.kernels.compile_case import CompileCase
from services.kernels.select.kernel_ranked import GROUPS, maxima_kernel, rank_kernel

TILE, READ_WARPS, RANK_WARPS = 4096, 8, 8
EARLY = True


@cache
def _scratch(device, rows, blocks, listed):
    sizes = blocks * GROUPS.value, blocks * 2, listed
    maxima, sums, found = (torch.empty(rows * size, device=device) for size in sizes)
    return maxima, sums, found, torch.empty(rows * listed, dtype=torch.int32, device=device)


def _power(count):
    return 1 << (count - 1).bit_length()


def _sizes(blocks, k):
    """Return the constants; rows without many ties need a place or two more than k."""
    return {
        "MERGE": max(_power(blocks * GROUPS.value), 1024),
        "COARSE": 64 if k <= 8 else 128,
        "PICKED": max(16, _power(k + k // 4 + 4)),
        "LISTED": _power(k + k // 2 + 8),
    }


def top_ranked(logits, k, values, ids, lowest_first=True, totals=None):
    """Do what select.top_ranked says; scratch is kept from the first call of a shape."""
    rows, vocab = logits.shape
    blocks = -(-vocab // TILE)
    sizes, places = _sizes(blocks, k), {"TILE": TILE, "TOTALS": totals is not None}
    maxima, sums, *found = _scratch(logits.device, rows, blocks, sizes["LISTED"])
    read = logits, logits.stride(0), maxima, sums
    maxima_kernel[(blocks, rows)](*read, vocab, **places, num_warps=READ_WARPS)
    rank_kernel[(rows,)](
        *read, *found, values, ids, values if totals is None else totals, vocab, blocks,
        K=k, **sizes, **places, LOWEST_FIRST=lowest_first, EARLY=EARLY and logits.is_cuda,
        num_warps=RANK_WARPS, launch_pdl=EARLY,
    )  # fmt: skip


def compile_cases(arch):
    """Return the offline compiles of this operation."""
    types = {"row_stride": "i32", "vocab": "i32", "num_blocks": "i32"}
    for name in ("logits", "maxima", "sums", "found_x", "values", "totals"):
        types[name] = "*fp32"
    for name in ("found_ids", "ids"):
        types[name] = "*i32"
    cases = []
    for vocab, k in ((8192, 4), (65536, 4), (248320, 3), (248320, 20)):
        shape = {"K": k, **_sizes(-(-vocab // TILE), k), "LOWEST_FIRST": True, "EARLY": EARLY}
        shape |= {"TILE": TILE, "TOTALS": k == 4}
        for kernel, warps in ((maxima_kernel, READ_WARPS), (rank_kernel, RANK_WARPS)):
            mine = {key: types[key] for key in kernel.arg_names if key in types}
            constants = {key: shape[key] for key in kernel.arg_names if key in shape}
            name = f"select.{kernel.__name__} V={vocab} k={k}"
            cases.append(CompileCase(name, kernel, mine, constants, num_warps=warps))
    return cases
