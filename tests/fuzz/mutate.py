"""Mutations of descriptors: of bytes, of fields, and of fields with a made-good checksum."""

import contextlib
import random
import struct
from typing import Any

from services.contract import pb
from services.contract.tree import tree_checksum
from tests.fuzz.reference_rules import COLUMNS, SCALARS

_UNSIGNED = (0, 1, 2, 15, 16, 31, 32, 33, 4095, 4096, 1 << 20, (1 << 31) - 1, (1 << 32) - 1)
_SIGNED = (-(1 << 31), -2, -1, 0, 1, 15, 31, 32, (1 << 31) - 1)
_FLOATS = (float("nan"), float("inf"), float("-inf"), -0.0, 0.5, -1.0, -9999.0, -10000.0, 3e38)
_INTERESTING: dict[str, tuple[Any, ...]] = {
    "parents": _SIGNED,
    "sources": (-1, *range(10), 255),
    "draft_logprobs": _FLOATS,
    "is_padding": (False, True),
}
_SCALAR_LIMITS = {"epoch": 64, "cycle": 64, "committed_length": 64, "generation": 64}


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return a mutant of a serialised descriptor."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, data)
    message = pb.tree_pb2.TreeDescriptor.FromString(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _mutate_field(rng, message)
    if rng.random() < 0.7:
        _make_checksum_good(message)
    return bytes(message.SerializeToString())


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes with one region flipped, cut, repeated or filled."""
    buffer = bytearray(data)
    start = rng.randrange(len(buffer) + 1)
    end = min(len(buffer), start + rng.choice((1, 1, 2, 8, 64)))
    kind = rng.randrange(5)
    if kind == 0 and start < len(buffer):
        buffer[start] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del buffer[start:end]
    elif kind == 2:
        buffer[start:start] = buffer[start:end] * rng.choice((1, 2, 16))
    elif kind == 3:
        buffer[start:end] = rng.randbytes(end - start)
    else:
        del buffer[start:]
    return bytes(buffer)


def _mutate_field(rng: random.Random, message: Any) -> None:
    if rng.random() < 0.25:
        _mutate_scalar(rng, message)
        return
    if rng.random() < 0.05:
        _permute_slots(rng, message)
        return
    name = rng.choice(COLUMNS)
    column = getattr(message, name)
    values = list(column)
    _mutate_list(rng, values, _INTERESTING.get(name, _UNSIGNED))
    del column[:]
    column.extend(values)


def _permute_slots(rng: random.Random, message: Any) -> None:
    rows = len(message.node_to_slot)
    slots = rng.sample(range(rows), rows)
    message.node_to_slot[:] = slots
    message.slot_to_node[:] = sorted(range(rows), key=slots.__getitem__)


def _mutate_list(rng: random.Random, values: list[Any], interesting: tuple[Any, ...]) -> None:
    kind = rng.randrange(8)
    if kind == 0:
        values.append(rng.choice(interesting))
    elif kind == 1 and values:
        values.pop(rng.randrange(len(values)))
    elif kind == 2 and len(values) > 1:
        i, j = rng.sample(range(len(values)), 2)
        values[i], values[j] = values[j], values[i]
    elif kind == 3:
        values *= rng.choice((0, 2, 50))
    elif values:
        values[rng.randrange(len(values))] = rng.choice(interesting)


def _mutate_scalar(rng: random.Random, message: Any) -> None:
    name = rng.choice(SCALARS)
    if rng.random() < 0.3:
        message.ClearField(name)
    elif name == "request_id":
        message.request_id = "x" * rng.choice((0, 1, 128, 129, 5000))
    elif rng.random() < 0.3:
        setattr(message, name, (1 << _SCALAR_LIMITS.get(name, 32)) - 1)
    else:
        setattr(message, name, max(0, getattr(message, name) + rng.choice((-1, 1, 2, 31))) % 2**32)


def _make_checksum_good(message: Any) -> None:
    columns = [getattr(message, name)[:] for name in COLUMNS]
    if len({len(column) for column in columns}) == 1 and len(columns[0]) <= 32:
        with contextlib.suppress(struct.error):
            message.checksum = tree_checksum(columns)
