"""Tree geometry: which node hangs where, and which mechanism fills it; no tokens, no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from services.contract.errors import InvalidField
from services.contract.limits import DEFAULT_DEPTH, MAX_DEPTH, MAX_PATH, MAX_ROWS
from services.contract.tree import NodeSource

MAX_CANDIDATES: Final = 27
ADAPTIVE_RANKS: Final = 4
ADAPTIVE_PASSES: Final = 8

# The published 32-row tree, nodes by (depth, path); four of its rows carry nothing.
HYDRA32_PARENTS: Final = (
    *(-1, 0, 0, 0, 1, 1, 1, 2, 3, 4, 4, 4, 7, 8, 9, 9),
    *(9, 12, 13, 14, 14, 14, 17, 18, 19, 23, 24, 25, 26, 28, 29, 30),
)
HYDRA32_INACTIVE: Final = frozenset({18, 23, 25, 27})


@dataclass(frozen=True, slots=True)
class Shape:
    """Hold the parents of a tree and the mechanism of each node.

    Args    parents: -1 for node 0, else an earlier node. sources: one a node. ranks: place
            among its siblings' proposals, 0 the most likely. num_passes: MTP passes it needs at
            most.
    """

    name: str
    parents: tuple[int, ...]
    sources: tuple[NodeSource, ...]
    ranks: tuple[int, ...]
    num_passes: int

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes, root included."""
        return len(self.parents)

    @property
    def is_adaptive(self) -> bool:
        """Return whether the tree is chosen anew in every cycle."""
        return self.name.startswith("adaptive")

    @property
    def num_ranks(self) -> int:
        """Return how many proposals of an MTP pass it uses."""
        if self.is_adaptive:
            return ADAPTIVE_RANKS
        pairs = zip(self.ranks, self.sources, strict=True)
        return 1 + max((rank for rank, source in pairs if _is_mtp(source)), default=-1)


@lru_cache(maxsize=64)
def parse_shape(text: str) -> Shape:
    """Return the shape that `text` names: root, chain-K, hydra27, adaptive[-P] or JSON parents.

    Raises  InvalidField saying what is allowed.
    """
    if text == "root":
        return shape_of("root", (-1,), 0)
    if text == "hydra27":
        return shape_of("hydra27", hydra27_parents(), DEFAULT_DEPTH)
    if text == "adaptive":
        return Shape(text, (-1,), (NodeSource.ROOT,), (0,), ADAPTIVE_PASSES)
    kind, _, number = text.partition("-")
    if kind == "chain":
        length = _number(text, number)
        return shape_of(text, tuple(range(-1, length)), length)
    if kind == "adaptive":
        return Shape(text, (-1,), (NodeSource.ROOT,), (0,), _number(text, number))
    if text[:1] in ("[", "{"):
        return shape_of("json", checked_parents(_json_parents(text)), DEFAULT_DEPTH)
    message = f"{text!r}; use root, chain-K, hydra27, adaptive or a JSON list of parents"
    raise InvalidField("SHAPE", message, "shape")


def hydra27_parents() -> tuple[int, ...]:
    """Return the parents of hydra27's 28 live nodes, renumbered without the padding rows."""
    live = [node for node in range(MAX_ROWS) if node not in HYDRA32_INACTIVE]
    place = {-1: -1, **{node: index for index, node in enumerate(live)}}
    return tuple(place[HYDRA32_PARENTS[node]] for node in live)


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


def shape_of(name: str, parents: tuple[int, ...], num_passes: int) -> Shape:
    """Return the shape of checked parents.

    Nodes below the MTP spine are proposals of the next pass, by sibling order; the rest, and
    everything deeper than the passes, continues the best suffix matches.
    """
    spine, depths = [0], [0]
    sources, ranks, seen = [NodeSource.ROOT], [0], [0] * len(parents)
    for node, parent in enumerate(parents[1:], start=1):
        depths.append(depths[parent] + 1)
        rank = seen[parent]
        seen[parent] += 1
        on_spine = parent in spine
        if on_spine and depths[node] <= num_passes:
            sources.append(NodeSource.MTP_RUNNER_UP if rank else NodeSource.MTP_SPINE)
            if rank == 0:
                spine.append(node)
        else:
            rescue = not on_spine and sources[parent] != NodeSource.SUFFIX_TAIL
            sources.append(NodeSource.SUFFIX_RESCUE if rescue else NodeSource.SUFFIX_TAIL)
        ranks.append(rank)
    mtp_depths = [depth for depth, source in zip(depths, sources, strict=True) if _is_mtp(source)]
    return Shape(name, parents, tuple(sources), tuple(ranks), max(mtp_depths, default=0))


def _is_mtp(source: NodeSource) -> bool:
    return source in (NodeSource.MTP_SPINE, NodeSource.MTP_RUNNER_UP)


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
