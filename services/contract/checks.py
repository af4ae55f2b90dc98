"""Small checks that raise the contract's error with the field's name and the limit."""

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Protocol

from services.contract.errors import InvalidField

_F32 = struct.Struct("<f")


class HasPresence(Protocol):
    """A protobuf message, as far as presence goes."""

    def HasField(self, field_name: str) -> bool:
        """Say whether a field is set."""
        ...


def whole(value: object, low: int, high: int, field: str) -> int:
    """Return `value` if it is an int (not a bool) in [low, high]."""
    if type(value) is not int:
        raise InvalidField("NOT_AN_INTEGER", f"{value!r} is not an integer", field)
    if not low <= value <= high:
        raise InvalidField("OUT_OF_RANGE", f"{value} is outside {low}..{high}", field)
    return value


def real(value: object, low: float, high: float, field: str) -> float:
    """Return `value` rounded to float32 if it is a finite number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidField("NOT_A_NUMBER", f"{value!r} is not a number", field)
    if not math.isfinite(value):
        raise InvalidField("NOT_FINITE", f"{value} is not finite", field)
    if not low <= value <= high:
        raise InvalidField("OUT_OF_RANGE", f"{value} is outside {low}..{high}", field)
    return float(_F32.unpack(_F32.pack(value))[0])


def flag(value: object, field: str) -> bool:
    """Return `value` if it is a bool."""
    if not isinstance(value, bool):
        raise InvalidField("NOT_A_FLAG", f"{value!r} is neither true nor false", field)
    return value


def text(value: object, max_chars: int, field: str) -> str:
    """Return `value` if it is a string of at most `max_chars` characters."""
    if not isinstance(value, str):
        raise InvalidField("NOT_TEXT", f"a {type(value).__name__} is not text", field)
    if len(value) > max_chars:
        raise InvalidField("TOO_LONG", f"{len(value)} characters; limit {max_chars}", field)
    return value


def at_most(values: Sequence[object], limit: int, field: str) -> None:
    """Refuse a list of more than `limit` entries."""
    if len(values) > limit:
        raise InvalidField("TOO_MANY", f"{len(values)} entries; limit {limit}", field)


def token_ids(values: Iterable[object], vocab_size: int, limit: int, field: str) -> tuple[int, ...]:
    """Return the ids as a tuple if there are at most `limit`, each in the vocabulary."""
    listed = tuple(values)
    at_most(listed, limit, field)
    return tuple(whole(x, 0, vocab_size - 1, f"{field}[{i}]") for i, x in enumerate(listed))


def require(message: HasPresence, fields: Iterable[str], prefix: str = "") -> None:
    """Refuse a message in which one of `fields` is not set."""
    for name in fields:
        if not message.HasField(name):
            raise InvalidField("MISSING", "not set; set it", f"{prefix}{name}")
