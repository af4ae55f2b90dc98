"""The names of tree shapes: what one may ask for, checked before any work."""

import json
from dataclasses import dataclass
from functools import lru_cache

from services.contract.errors import InvalidField
from services.contract.limits import MAX_DEPTH, MAX_PATH, MAX_ROWS

_PLAIN = ("root", "hydra27", "adaptive")
_NUMBERED = ("chain", "adaptive")


@dataclass(frozen=True, slots=True)
class ShapeName:
    """Hold a parsed name.

    Args    kind: root, hydra27, adaptive, chain or json. number: the K of chain-K and
            adaptive-K, 0 without one. parents: of a JSON shape.
    """

    kind: str
    number: int = 0
    parents: tuple[int, ...] = ()


@lru_cache(maxsize=64)
def read_shape(text: str) -> ShapeName:
    """Return what `text` names: root, chain-K, hydra27, adaptive[-K] or JSON parents.

    Raises  InvalidField saying what is allowed.
    """
    if text in _PLAIN:
        return ShapeName(text)
    kind, _, number = text.partition("-")
    if kind in _NUMBERED:
        return ShapeName(kind, number=_number(text, number))
    if text[:1] in ("[", "{"):
        return ShapeName("json", parents=checked_parents(_json_parents(text)))
    message = f"{text!r}; use root, chain-K, hydra27, adaptive or a JSON list of parents"
    raise InvalidField("SHAPE", message, "shape")


def checked_parents(parents: object) -> tuple[int, ...]:
    """Return `parents` if they make a tree within the limits.

    Raises  InvalidField for no list, more than 32 rows, a path of more than 16 nodes, a second
            root, or a parent that does not precede its child.
    """
    if not isinstance(parents, list | tuple) or not 1 <= len(parents) <= MAX_ROWS:
        raise _refusal(f"a tree is a list of 1..{MAX_ROWS} parents")
    depths: list[int] = []
    for node, parent in enumerate(parents):
        if type(parent) is not int or (parent != -1 if node == 0 else not 0 <= parent < node):
            raise _refusal(f"node {node}: -1 is the first node's parent, an earlier node others'")
        depths.append(depths[parent] + 1 if node else 0)
        if depths[node] > MAX_DEPTH:
            raise _refusal(f"the path to node {node} has over {MAX_PATH} nodes; limit {MAX_PATH}")
    return tuple(parents)


def _number(text: str, number: str) -> int:
    if not (number.isdecimal() and number.isascii() and 1 <= int(number[:4]) <= MAX_DEPTH):
        raise InvalidField("SHAPE", f"{text!r}; the number is from 1 to {MAX_DEPTH}", "shape")
    return int(number)


def _json_parents(text: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _refusal("not readable JSON") from None
    if isinstance(value, dict):
        if set(value) != {"parents"}:
            raise _refusal('an object has the one key "parents"')
        return value["parents"]
    return value


def _refusal(message: str) -> InvalidField:
    return InvalidField("SHAPE", message, "shape")
