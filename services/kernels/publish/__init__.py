"""The moves that publish an accepted path: conv rows, keys and values, then the words.

Every move compares the path's epoch and cycle with the slot's words and changes nothing on a
mismatch; until `flip` each may be repeated.

Shapes  S slots, L GDN layers, A attention layers; words [S, 16], path [S, 64] int32
        (state_words); slots [B] int32: the slots to publish.
"""

import torch

from services.kernels.dispatch import backend


def conv_gather(
    raw_ring: torch.Tensor,
    conv: torch.Tensor,
    words: torch.Tensor,
    path: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Write the last 3 raw rows (old state, then path nodes) to the set that is not active.

    Shapes  raw_ring [S, L, 32, C], conv [S, 2, L, 3, C]; all layers in one launch.
    """
    backend("publish", conv.device.type).conv_gather(raw_ring, conv, words, path, slots)


def kv_scatter(
    kv_ring: torch.Tensor,
    kv: torch.Tensor,
    page_table: torch.Tensor,
    words: torch.Tensor,
    path: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Copy keys and values of the path's nodes to positions LENGTH, LENGTH + 1, ... in pages.

    Shapes  kv_ring [S, A, 2, Hkv, 32, D], kv [A, P, 2, Hkv, 64, D], page_table [S, max_pages];
            all layers in one launch.
    """
    backend("publish", kv.device.type).kv_scatter(kv_ring, kv, page_table, words, path, slots)


def flip(words: torch.Tensor, path: torch.Tensor, slots: torch.Tensor) -> None:
    """Make the new state the active one: flip the set, add the length, advance the cycle."""
    backend("publish", words.device.type).flip(words, path, slots)
