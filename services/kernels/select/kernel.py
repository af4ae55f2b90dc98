"""Launch ordered selection in Triton."""

from functools import cache

import torch

from services.kernels.compile_case import CompileCase
from services.kernels.select.kernel_ranked import top_ranked_kernel

TILE, WARPS = 4096, 8


@cache
def _scratch(device, rows, words):
    partial = torch.empty(rows * words, dtype=torch.int32, device=device)
    return partial, torch.zeros(rows, dtype=torch.int32, device=device)


def _power(count):
    return 1 << (count - 1).bit_length()


def top_ranked(logits, k, values, ids, lowest_first=True):
    """Do what select.top_ranked says; scratch is kept from the first call of a shape."""
    rows, vocab = logits.shape
    tile = max(min(TILE, _power(vocab)), _power(k))
    blocks = -(-vocab // tile)
    partial, arrivals = _scratch(logits.device, rows, blocks * 2 * k)
    top_ranked_kernel[(rows, blocks)](
        logits, logits.stride(0), partial, arrivals, values, ids, vocab,
        K=k, TILE=tile, MERGE=_power(blocks * k), LOWEST_FIRST=lowest_first, num_warps=WARPS,
    )  # fmt: skip


def compile_cases(arch):
    """Return the offline compiles of this operation."""
    types = {
        "logits": "*fp32", "row_stride": "i32", "partial": "*i32", "arrivals": "*i32",
        "values": "*fp32", "ids": "*i32", "vocab": "i32",
    }  # fmt: skip
    cases = []
    for vocab, k in ((8192, 4), (248320, 4), (248320, 20)):
        merge = _power(-(-vocab // TILE) * k)
        constants = {"K": k, "TILE": TILE, "MERGE": merge, "LOWEST_FIRST": True}
        name = f"select.top_ranked V={vocab} k={k}"
        cases.append(CompileCase(name, top_ranked_kernel, types, constants, num_warps=WARPS))
    return cases
