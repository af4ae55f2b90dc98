"""Tree geometry: which node hangs where, and which mechanism fills it; no tokens, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from services.contract.limits import DEFAULT_DEPTH, MAX_ROWS
from services.contract.shape import read_shape
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
    named = read_shape(text)
    if named.kind == "root":
        return shape_of("root", (-1,), 0)
    if named.kind == "hydra27":
        return shape_of("hydra27", hydra27_parents(), DEFAULT_DEPTH)
    if named.kind == "adaptive":
        num_passes = named.number or ADAPTIVE_PASSES
        return Shape(text, (-1,), (NodeSource.ROOT,), (0,), num_passes)
    if named.kind == "chain":
        return shape_of(text, tuple(range(-1, named.number)), named.number)
    return shape_of("json", named.parents, DEFAULT_DEPTH)


def hydra27_parents() -> tuple[int, ...]:
    """Return the parents of hydra27's 28 live nodes, renumbered without the padding rows."""
    live = [node for node in range(MAX_ROWS) if node not in HYDRA32_INACTIVE]
    place = {-1: -1, **{node: index for index, node in enumerate(live)}}
    return tuple(place[HYDRA32_PARENTS[node]] for node in live)


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
