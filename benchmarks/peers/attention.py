"""Attention peers over the same keys: SDPA with a mask, flex attention, FlashInfer.

The first two read contiguous keys [1, Hkv, n, D] (the pages and the tree's candidates laid out
before the clock starts), FlashInfer reads pages that hold the candidates too; all take the tree's
mask [rows, n]. Layout, planning and publication are not charged to them.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

Peer = Callable[[], None]


def sdpa(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> Peer:
    """Return SDPA with the rows of a kv head's group packed as one head.

    Shapes  q [rows, Hq, D]; keys, values [Hkv, n, D]; mask [rows, n] bool.
    """
    rows, heads, dim = q.shape
    kv_heads, length, _ = keys.shape
    group = heads // kv_heads
    packed = q.view(rows, kv_heads, group, dim).permute(1, 0, 2, 3).reshape(kv_heads, 1, -1, dim)
    packed = packed.contiguous()
    wide = mask.repeat_interleave(group, 0).expand(kv_heads, 1, rows * group, length)

    def run() -> None:
        F.scaled_dot_product_attention(packed, keys[:, None], values[:, None], wide)

    return run


def flex(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> Peer:
    """Return compiled flex attention with grouped query heads and a block mask."""
    query = q.transpose(0, 1)[None].contiguous()
    block = create_block_mask(
        lambda _b, _h, row, key: mask[row, key], 1, 1, mask.shape[0], mask.shape[1], device="cuda"
    )
    compiled = torch.compile(flex_attention, dynamic=False)

    def run() -> None:
        compiled(query, keys[None], values[None], block_mask=block, enable_gqa=True)

    return run


def flashinfer(
    q: torch.Tensor, kv: torch.Tensor, pages: torch.Tensor, length: int, mask: torch.Tensor
) -> Peer:
    """Return FlashInfer's paged prefill with the tree's mask; kv holds the candidates as well.

    Shapes  kv [P, 2, Hkv, 64, D]; pages of the sequence in order; mask [rows, length].
    """
    from flashinfer import BatchPrefillWithPagedKVCacheWrapper

    rows, heads, dim = q.shape
    count, page = -(-length // kv.shape[3]), kv.shape[3]
    words = [torch.tensor(v, dtype=torch.int32, device="cuda") for v in ([0, rows], [0, count])]
    last = torch.tensor([length - (count - 1) * page], dtype=torch.int32, device="cuda")
    scratch = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    wrapper = BatchPrefillWithPagedKVCacheWrapper(scratch, "HND")
    wrapper.plan(
        *words, pages[:count].contiguous(), last, heads, kv.shape[2], dim, page,
        custom_mask=mask.flatten(), q_data_type=q.dtype,
    )  # fmt: skip

    def run() -> None:
        wrapper.run(q, kv)

    return run
