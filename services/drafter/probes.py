"""Test drafters: trees from known, random, wrong or recorded tokens; outputs must not notice.

    random              every candidate is a pseudo-random token
    oracle:FILE         the true continuation on one path, wrong tokens elsewhere
    adversarial:D:FILE  the same, but wrong from depth D + 1 on
    replay:FILE         recorded trees, one JSON object a line: parents and token_ids
FILE of a truth is JSON: a list of token ids, or an object with the key token_ids; or it is
@NAME, a continuation that the same process has remembered under that name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from zlib import crc32

from services.contract.checks import token_ids
from services.contract.errors import InvalidField
from services.contract.limits import MAX_DEPTH, MAX_NEW_TOKENS, MAX_ROWS
from services.contract.shape import checked_parents
from services.contract.tree import NodeSource
from services.drafter.draft import Draft
from services.drafter.shape import Shape, parse_shape

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
MAX_REPLAY_LINES: Final = 100_000
MAX_TRUTHS: Final = 256

_truths: dict[str, tuple[int, ...]] = {}


class Probe(Protocol):
    """A test drafter of one request."""

    def draft(self, shape: Shape, root: int, cycle: int, num_emitted: int) -> Draft:
        """Return the tree of one cycle, after `num_emitted` tokens."""
        ...


def remember_truth(name: str, tokens: Sequence[int]) -> None:
    """Keep a true continuation for `oracle:@name`; the oldest of 256 is forgotten."""
    while len(_truths) >= MAX_TRUTHS and name not in _truths:
        del _truths[next(iter(_truths))]
    _truths[name] = tuple(tokens)


def parse_probe(text: str, vocab_size: int) -> Probe | None:
    """Return the test drafter that `text` names; None for "mtp".

    Raises  InvalidField for an unknown name, or a file that is not what it must be.
    """
    kind, _, rest = text.partition(":")
    if text == "mtp":
        return None
    if text == "random":
        return TruthProbe((), 0, vocab_size)
    if kind == "oracle" and rest:
        return TruthProbe(_truth(rest, vocab_size), MAX_DEPTH, vocab_size)
    if kind == "adversarial":
        depth, _, rest = rest.partition(":")
        if depth.isdecimal() and int(depth[:4]) <= MAX_DEPTH and rest:
            return TruthProbe(_truth(rest, vocab_size), int(depth), vocab_size)
    if kind == "replay" and rest:
        return ReplayProbe(_recorded(Path(rest), vocab_size))
    known = "mtp, random, oracle:FILE, adversarial:D:FILE or replay:FILE"
    raise InvalidField("DRAFTER", f"{text!r}; use {known}, D up to {MAX_DEPTH}", "drafter")


class TruthProbe:
    """Put the true continuation, up to a depth, on one path; fill the rest with wrong tokens.

    The path moves from cycle to cycle over all leaves of the shape, so that accepted nodes are
    seldom the first ones.
    """

    def __init__(self, truth: tuple[int, ...], depth: int, vocab_size: int) -> None:
        self._truth = truth
        self._depth = depth
        self._vocab_size = vocab_size

    def draft(self, shape: Shape, root: int, cycle: int, num_emitted: int) -> Draft:
        """Return the shape (hydra27 where it is adaptive) with tokens of this probe."""
        parents = parse_shape("hydra27").parents if shape.is_adaptive else shape.parents
        path = _leaf_path(parents, cycle)
        draft = Draft.root(root)
        for node, parent in enumerate(parents[1:], start=1):
            depth = draft.depths[parent] + 1
            place = num_emitted + depth - 1
            true = self._truth[place] if place < len(self._truth) else None
            if true is not None and depth <= self._depth and node in path:
                token = true
            else:
                token = self._wrong(cycle, node, true)
            draft.add(parent, token, NodeSource.TEST, 1.0)
        return draft

    def _wrong(self, cycle: int, node: int, true: int | None) -> int:
        token = crc32(b"%d %d" % (cycle, node)) % self._vocab_size
        return (token + 1) % self._vocab_size if token == true else token


class ReplayProbe:
    """Give back recorded trees, one a cycle; the root alone when they are used up."""

    def __init__(self, trees: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
        self._trees = trees

    def draft(self, shape: Shape, root: int, cycle: int, num_emitted: int) -> Draft:
        """Return the recorded tree of this cycle below the present root."""
        draft = Draft.root(root)
        if cycle < len(self._trees):
            parents, tokens = self._trees[cycle]
            for parent, token in zip(parents[1:], tokens[1:], strict=True):
                draft.add(parent, token, NodeSource.TEST, 1.0)
        return draft


def _leaf_path(parents: Sequence[int], cycle: int) -> set[int]:
    leaves = [node for node in range(len(parents)) if node not in parents]
    node, path = leaves[cycle % len(leaves)], set()
    while node >= 0:
        path.add(node)
        node = parents[node]
    return path


def _truth(name: str, vocab_size: int) -> tuple[int, ...]:
    if name.startswith("@"):
        if name[1:] not in _truths:
            raise InvalidField("DRAFTER", f"no continuation {name[1:]!r} is remembered", "drafter")
        return _truths[name[1:]]
    value = _parsed(_read(Path(name)))
    value = value.get("token_ids") if isinstance(value, dict) else value
    return token_ids(_list(value), vocab_size, MAX_NEW_TOKENS, "drafter")


def _recorded(path: Path, vocab_size: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    trees = []
    for line in _read(path).splitlines()[:MAX_REPLAY_LINES]:
        value = _parsed(line)
        if not isinstance(value, dict):
            raise InvalidField("DRAFTER", "a replay line is no JSON object", "drafter")
        parents = checked_parents(value.get("parents"))
        tokens = token_ids(_list(value.get("token_ids")), vocab_size, MAX_ROWS, "drafter")
        if len(tokens) != len(parents):
            counts = f"{len(tokens)} token_ids for {len(parents)} parents"
            raise InvalidField("DRAFTER", f"{counts}; send one a node", "drafter")
        trees.append((parents, tokens))
    return trees


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError):
        raise InvalidField(
            "DRAFTER", "the drafter's file cannot be read as text", "drafter"
        ) from None
    if len(data) > MAX_FILE_BYTES:
        message = f"the drafter's file is over {MAX_FILE_BYTES} bytes; shorten it"
        raise InvalidField("DRAFTER", message, "drafter")
    return text


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidField("DRAFTER", "the drafter's file is not JSON", "drafter") from None


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise InvalidField("DRAFTER", "the drafter's file holds no list of token ids", "drafter")
    return value
