"""Names of models: what a public request may call one; never a path."""

from __future__ import annotations

import re
from typing import Final

from services.contract.errors import InvalidField, NotFoundError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def model_name(name: str, field: str = "model") -> str:
    """Return a name that is well formed.

    Raises  InvalidField without quoting the name.
    """
    if not _NAME.fullmatch(name):
        message = "not a model name; use 1 to 64 letters, digits, '.', '_' or '-', no '.' first"
        raise InvalidField("MODEL_NAME", message, field)
    return name


def check_served(name: str, served: str) -> None:
    """Refuse any name but the served one; an empty one means it."""
    if name and model_name(name) != served:
        message = f"{name!r} is not served; use {served!r} or leave it out"
        raise NotFoundError("UNKNOWN_MODEL", message, "model")
