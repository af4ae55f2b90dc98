"""JSON text that callers send: bounded depth, no other error than the contract's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from services.contract.errors import InvalidField

MAX_DEPTH: Final = 64


def read_json(text: str, field: str) -> Any:
    """Return the value of a JSON text.

    Raises  InvalidField if it is none, or nested deeper than MAX_DEPTH.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        message = f"not JSON of at most {MAX_DEPTH} levels and 4,300 digits a number"
        raise InvalidField("JSON", message, field) from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _children(outer)]
        if not level:
            return value
    raise InvalidField("JSON", f"nested deeper than {MAX_DEPTH}; send less", field)


def json_or_text(text: str) -> Any:
    """Return the value of a JSON text, or the text itself where it is none."""
    try:
        return read_json(text, "")
    except InvalidField:
        return text


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
