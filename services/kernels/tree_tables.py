"""The int32 tables through which a tree reaches the kernels: topology is data."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from services.contract.limits import MAX_PATH, MAX_ROWS, TABLE_WORDS
from services.contract.topology import NodeSource, Tree

MAX_CHAINS: Final = 16

# The one-pass schedule: lanes of events, and the bits of an event word beside the node id.
GDN_LANES: Final = 2
LANE_EVENTS: Final = 112
EVENT_LEAF: Final = 32
EVENT_EMIT: Final = 64
EVENT_RUN: Final = 8

# Words of the header.
LIVE: Final = 0
COMMITTED_LENGTH: Final = 1
SLOT: Final = 2
CYCLE: Final = 3
NUM_PATHS: Final = 4
NUM_CHAINS: Final = 5
TRUNK_LENGTH: Final = 6
FORCED: Final = 7

# First word of each table in the block of a sequence.
HEADER: Final = 0
TOKENS: Final = HEADER + 16
PARENTS: Final = TOKENS + MAX_ROWS
DEPTHS: Final = PARENTS + MAX_ROWS
LIVE_ROWS: Final = DEPTHS + MAX_ROWS
ANCESTORS: Final = LIVE_ROWS + MAX_ROWS
PATH_OF: Final = ANCESTORS + MAX_ROWS * MAX_PATH
LEAF_PATHS: Final = PATH_OF + MAX_ROWS
PATH_LENGTH: Final = LEAF_PATHS + MAX_ROWS * MAX_PATH
PATH_OWN: Final = PATH_LENGTH + MAX_ROWS
PATH_FORK: Final = PATH_OWN + MAX_ROWS
CHAINS: Final = PATH_FORK + MAX_ROWS
CHAIN_LENGTH: Final = CHAINS + MAX_CHAINS * MAX_PATH
CHAIN_OWN: Final = CHAIN_LENGTH + MAX_CHAINS
LEAF_START: Final = CHAIN_OWN + MAX_CHAINS
LEAF_COUNT: Final = LEAF_START + MAX_ROWS
LEAVES: Final = LEAF_COUNT + MAX_ROWS
EVENT_COUNT: Final = LEAVES + MAX_ROWS
EVENTS: Final = EVENT_COUNT + 8
USED_WORDS: Final = EVENTS + GDN_LANES * LANE_EVENTS

_SHAPES: Final[dict[str, tuple[int, tuple[int, ...]]]] = {
    "header": (HEADER, (16,)),
    "tokens": (TOKENS, (MAX_ROWS,)),
    "parents": (PARENTS, (MAX_ROWS,)),
    "depths": (DEPTHS, (MAX_ROWS,)),
    "live": (LIVE_ROWS, (MAX_ROWS,)),
    "ancestors": (ANCESTORS, (MAX_ROWS, MAX_PATH)),
    "path_of": (PATH_OF, (MAX_ROWS,)),
    "leaf_paths": (LEAF_PATHS, (MAX_ROWS, MAX_PATH)),
    "path_length": (PATH_LENGTH, (MAX_ROWS,)),
    "path_own": (PATH_OWN, (MAX_ROWS,)),
    "path_fork": (PATH_FORK, (MAX_ROWS,)),
    "chains": (CHAINS, (MAX_CHAINS, MAX_PATH)),
    "chain_length": (CHAIN_LENGTH, (MAX_CHAINS,)),
    "chain_own": (CHAIN_OWN, (MAX_CHAINS,)),
    "leaf_start": (LEAF_START, (MAX_ROWS,)),
    "leaf_count": (LEAF_COUNT, (MAX_ROWS,)),
    "leaves": (LEAVES, (MAX_ROWS,)),
    "event_count": (EVENT_COUNT, (8,)),
    "events": (EVENTS, (GDN_LANES, LANE_EVENTS)),
}
_FILL: Final = np.full(TABLE_WORDS, -1, np.int32)
for _name in (
    "header",
    "tokens",
    "depths",
    "live",
    "path_length",
    "path_own",
    "path_fork",
    "chain_length",
    "chain_own",
    "leaf_start",
    "leaf_count",
    "event_count",
    "events",
):
    _start, _shape = _SHAPES[_name]
    _FILL[_start : _start + int(np.prod(_shape))] = 0
_FILL[USED_WORDS:] = 0


@dataclass(frozen=True, slots=True)
class TableViews:
    """View a block of tables [B, TABLE_WORDS]; row b belongs to sequence b of the slab.

    Node tables have one entry a row (0 root); rows >= header[LIVE] are padding.
    header       [B, 16] live rows, committed_length, slot, cycle, paths, chains, trunk length,
                 forced (1 if every candidate is FORCED: the walk takes them all).
    tokens, parents (-1: root, padding), depths, live (0/1)   [B, 32].
    ancestors    [B, 32, 16] nodes root..self by depth, then -1.
    leaf_paths   [B, 32, 16] nodes of each root-to-leaf path, then -1; the longest path first.
    path_of      [B, 32] the first path that holds the row: the path that owns it; -1 padding.
    path_length, path_own, path_fork [B, 32] of a path: its nodes; index of the first node it
                 owns; leading nodes that lie on path 0's trunk.
    chains       [B, 16, 16] root-to-last-inner paths (nodes that need a state), then -1;
                 chain_length, chain_own as for paths. A lone root is a chain of one node.
    leaf_start, leaf_count [B, 32], leaves [B, 32]: leaf children of node i are
                 leaves[leaf_start[i] : leaf_start[i] + leaf_count[i]].
    events       [B, 2, 112] words of the one-pass schedule: node | LEAF (no state is needed after
                 it) | EMIT (write its output) | length << RUN on the first event of a run, which
                 starts from the slot's state. Lane i runs its first event_count[i] events.
    The trunk is the leading part of path 0 that ends at its last node with another child path:
    TRUNK_LENGTH nodes. Every path leaves it after path_fork nodes (at least the root).
    """

    block: torch.Tensor

    def __getattr__(self, name: str) -> torch.Tensor:
        if name not in _SHAPES:
            raise AttributeError(name)
        start, shape = _SHAPES[name]
        flat = self.block[:, start : start + int(np.prod(shape))]
        return flat.unflatten(1, shape) if len(shape) > 1 else flat


def build_tables(
    tree: Tree, committed_length: int, slot: int, cycle: int, out: npt.NDArray[np.int32]
) -> None:
    """Write the tables of one tree into `out` [TABLE_WORDS]."""
    live = tree.num_nodes
    out[:] = _topology(tree.parents)
    out[TOKENS : TOKENS + live] = tree.token_ids
    out[COMMITTED_LENGTH], out[SLOT], out[CYCLE] = committed_length, slot, cycle & 0x7FFFFFFF
    out[FORCED] = live > 1 and set(tree.sources[1:]) == {NodeSource.FORCED}


@lru_cache(maxsize=1024)
def _topology(parents: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Return the words that the parents alone decide; shapes recur from cycle to cycle."""
    out = _FILL.copy()
    count = len(parents)
    paths: list[tuple[int, ...]] = [(0,)]
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], 1):
        paths.append((*paths[parent], node))
        children[parent].append(node)
    inner = set(parents[1:])
    leaves = [path for path in paths if path[-1] not in inner]
    leaves.sort(key=lambda path: (-len(path), path))
    chains = [path for path in paths if _ends_chain(children, path[-1], inner)]
    chains.sort(key=lambda path: (-len(path), path))
    _write_nodes(parents, paths, out)
    owners = _write_paths(leaves, LEAF_PATHS, PATH_LENGTH, PATH_OWN, out)
    for node, owner in owners.items():
        out[PATH_OF + node] = owner
    _write_paths(chains, CHAINS, CHAIN_LENGTH, CHAIN_OWN, out)
    leaf_children = [[child for child in below if child not in inner] for below in children]
    _write_leaves(leaf_children, out)
    _write_events(leaf_children, chains, inner, out)
    out[LIVE], out[NUM_PATHS], out[NUM_CHAINS] = count, len(leaves), len(chains)
    out[TRUNK_LENGTH] = _write_forks(leaves, out)
    out.flags.writeable = False
    return out


def _ends_chain(children: list[list[int]], node: int, inner: set[int]) -> bool:
    if node not in inner:
        return len(children) == 1
    return inner.isdisjoint(children[node])


def _write_nodes(
    parents: tuple[int, ...], paths: list[tuple[int, ...]], out: npt.NDArray[np.int32]
) -> None:
    live = len(parents)
    out[PARENTS : PARENTS + live] = parents
    out[DEPTHS : DEPTHS + live] = [len(path) - 1 for path in paths]
    out[LIVE_ROWS : LIVE_ROWS + live] = 1
    for node, path in enumerate(paths):
        start = ANCESTORS + node * MAX_PATH
        out[start : start + len(path)] = path


def _write_paths(
    paths: list[tuple[int, ...]], table: int, length: int, own: int, out: npt.NDArray[np.int32]
) -> dict[int, int]:
    owners: dict[int, int] = {}
    for index, path in enumerate(paths):
        start = table + index * MAX_PATH
        out[start : start + len(path)] = path
        out[length + index] = len(path)
        out[own + index] = sum(node in owners for node in path)
        for node in path:
            owners.setdefault(node, index)
    return owners


def _write_forks(paths: list[tuple[int, ...]], out: npt.NDArray[np.int32]) -> int:
    first = paths[0]
    shared = [sum(a == b for a, b in zip(path, first, strict=False)) for path in paths]
    trunk = max(shared[1:], default=len(first))
    for index, count in enumerate(shared):
        out[PATH_FORK + index] = min(count, trunk)
    return trunk


def _write_leaves(leaves: list[list[int]], out: npt.NDArray[np.int32]) -> None:
    filled = 0
    for node, below in enumerate(leaves):
        out[LEAF_START + node] = filled
        out[LEAF_COUNT + node] = len(below)
        out[LEAVES + filled : LEAVES + filled + len(below)] = below
        filled += len(below)


def _write_events(
    leaves: list[list[int]],
    chains: list[tuple[int, ...]],
    inner: set[int],
    out: npt.NDArray[np.int32],
) -> None:
    lanes: list[list[int]] = [[] for _ in range(GDN_LANES)]
    owned: set[int] = set()
    for chain in chains:
        run = _chain_events(chain, inner, owned, leaves)
        owned.update(chain)
        lane = min(lanes, key=len)
        lane += [run[0] | len(run) << EVENT_RUN, *run[1:]]
    for index, lane in enumerate(lanes):
        start = EVENTS + index * LANE_EVENTS
        out[start : start + len(lane)] = lane
        out[EVENT_COUNT + index] = len(lane)


def _chain_events(
    chain: tuple[int, ...], inner: set[int], owned: set[int], leaves: list[list[int]]
) -> list[int]:
    events: list[int] = []
    for node in chain:
        leaf = 0 if node in inner else EVENT_LEAF
        if node in owned:
            events.append(node | leaf)
        else:
            events.append(node | leaf | EVENT_EMIT)
            events += [child | EVENT_LEAF | EVENT_EMIT for child in leaves[node]]
    return events
