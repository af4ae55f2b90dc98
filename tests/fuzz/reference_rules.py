"""The rules of TreeDescriptor once more, one plain loop each; written apart from services/."""

import math
import struct
import zlib
from typing import Any

SCALARS = [
    "version",
    "request_id",
    "choice_index",
    "epoch",
    "cycle",
    "committed_length",
    "slot",
    "generation",
    "row_capacity",
    "active_count",
    "checksum",
]
COLUMNS = [
    "token_ids",
    "parents",
    "depths",
    "positions",
    "sources",
    "draft_logprobs",
    "is_padding",
    "node_to_slot",
    "slot_to_node",
]


def is_valid(message: Any, vocab_size: int, epoch: int) -> bool:
    """Say whether a descriptor obeys every rule."""
    return _has_valid_tag(message, epoch) and _has_valid_rows(message, vocab_size)


def _has_valid_tag(message: Any, epoch: int) -> bool:
    bounds = {
        "choice_index": 8,
        "cycle": 1 << 63,
        "committed_length": (1 << 20) - 16 + 1,
        "slot": 256,
        "generation": 1 << 63,
    }
    return (
        all(message.HasField(name) for name in SCALARS)
        and message.version == 1
        and message.epoch == epoch
        and len(message.request_id) <= 128
        and all(getattr(message, name) < bound for name, bound in bounds.items())
        and 1 <= message.active_count <= message.row_capacity <= 32
        and all(len(getattr(message, name)) == message.row_capacity for name in COLUMNS)
    )


def _has_valid_rows(message: Any, vocab_size: int) -> bool:
    for row in range(message.row_capacity):
        if message.node_to_slot[row] != row or message.slot_to_node[row] != row:
            return False
        if message.is_padding[row] != (row >= message.active_count):
            return False
        check = _is_padding_row if row >= message.active_count else _is_live_row
        if not check(message, row, vocab_size):
            return False
    return _checksum(message) == message.checksum


def _is_padding_row(message: Any, row: int, vocab_size: int) -> bool:
    return (
        message.token_ids[row] == 0
        and message.parents[row] == -1
        and message.depths[row] == 0
        and message.positions[row] == message.committed_length
        and message.sources[row] == 8
        and message.draft_logprobs[row] == 0.0
    )


def _is_live_row(message: Any, row: int, vocab_size: int) -> bool:
    parent, logprob = message.parents[row], message.draft_logprobs[row]
    if row == 0:
        structure = parent == -1 and message.sources[0] == 1 and logprob == 0.0
        depth = 0
    else:
        structure = 0 <= parent < row and 2 <= message.sources[row] <= 7
        depth = message.depths[parent] + 1 if structure else -1
    return (
        structure
        and message.depths[row] == depth <= 15
        and message.positions[row] == message.committed_length + depth
        and message.token_ids[row] < vocab_size
        and not math.isnan(logprob)
        and -9999.0 <= logprob <= 0.0
    )


def _checksum(message: Any) -> int:
    data = b""
    for name in COLUMNS:
        kind = {"parents": "<i", "draft_logprobs": "<f"}.get(name, "<I")
        data += b"".join(struct.pack(kind, value) for value in getattr(message, name))
    return zlib.crc32(data)
