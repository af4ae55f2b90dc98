"""Attention peers over the same keys: SDPA with a mask, and flex attention.

Both read contiguous keys [1, Hkv, n, D] (the pages and the path's candidates laid out before the
clock starts) and the tree's mask [rows, n]; paging and publication are not charged to them.
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
