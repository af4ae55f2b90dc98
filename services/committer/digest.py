"""Digests of a sequence's target state, to compare it with a plain decoder's."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import torch

from services.contract.limits import PAGE
from services.kernels.state_words import ACTIVE_SET, LENGTH
from services.runtime.arena import Arena

DIGEST_BYTES: Final = 16


def state_digest(state: Arena, slot: int) -> bytes:
    """Return the digest of recurrent rows, conv rows, keys, values and length of a slot.

    Numbers a function of the state's bits alone: not of the active set's number, the pages'
            places, or the cycle count; so plain and tree decoding compare at equal lengths.
    """
    total = blake2b(digest_size=DIGEST_BYTES)
    for part in surface_digests(state, slot).values():
        total.update(part)
    return total.digest()


def surface_digests(state: Arena, slot: int) -> dict[str, bytes]:
    """Return one digest a surface: length, recurrent, conv, kv."""
    words = state["words"][slot].tolist()
    active, length = words[ACTIVE_SET], words[LENGTH]
    return {
        "length": _digest([torch.tensor([length])]),
        "recurrent": _digest([state["recurrent"][slot, active]]),
        "conv": _digest([state["conv"][slot, active]]),
        "kv": kv_digest(state["kv"], state["page_table"][slot], length),
    }


def kv_digest(kv: torch.Tensor, pages: torch.Tensor, length: int) -> bytes:
    """Return the digest of keys and values of positions 0..length-1, in logical order.

    Shapes  kv [A, P, 2, Hkv, 64, D], pages [max_pages] int32.
    """
    full, rest = divmod(length, PAGE)
    numbers = pages[: full + 1].tolist()
    parts: list[torch.Tensor] = []
    for layer in kv:
        parts.extend(layer[page] for page in numbers[:full])
        if rest:
            parts.append(layer[numbers[full], :, :, :rest])
    return _digest(parts)


def _digest(parts: list[torch.Tensor]) -> bytes:
    total = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        total.update(part.contiguous().view(torch.uint8).cpu().numpy().data)
    return total.digest()
