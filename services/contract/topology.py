"""The tree of draft tokens of one cycle, as a checked value."""

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from services.contract.checks import whole
from services.contract.errors import InvalidField
from services.contract.limits import MAX_DEPTH, MAX_PATH, MAX_ROWS, MAX_VOCAB, MIN_LOGPROB


class NodeSource(IntEnum):
    """The mechanism that proposed a node; numbers equal tree.proto's."""

    ROOT = 1
    MTP_SPINE = 2
    MTP_RUNNER_UP = 3
    SUFFIX_TAIL = 4
    SUFFIX_RESCUE = 5
    TEST = 6
    FORCED = 7
    PADDING = 8


CANDIDATE_SOURCES: Final = frozenset(
    int(source) for source in NodeSource if source not in (NodeSource.ROOT, NodeSource.PADDING)
)


@dataclass(frozen=True, slots=True)
class Tree:
    """Hold the live nodes of one tree; an invalid tree cannot be made.

    Args    parents: -1 for node 0, else an earlier node. token_ids, sources: one a node.
            draft_logprobs: one a node, in [-9999, 0], rounded to float32; 0 for the root.
    Raises  InvalidField naming the column.
    """

    parents: tuple[int, ...]
    token_ids: tuple[int, ...]
    sources: tuple[int, ...]
    draft_logprobs: tuple[float, ...]
    depths: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_lengths(self)
        object.__setattr__(self, "depths", _checked_depths(self.parents))
        _check_tokens(self.token_ids)
        _check_sources(self.sources)
        object.__setattr__(self, "draft_logprobs", _checked_logprobs(self.draft_logprobs))

    @classmethod
    def root_only(cls, token: int) -> "Tree":
        """Return the tree of plain decoding: the pending token alone."""
        return cls((-1,), (token,), (int(NodeSource.ROOT),), (0.0,))

    @classmethod
    def checked(
        cls,
        parents: tuple[int, ...],
        token_ids: tuple[int, ...],
        sources: tuple[int, ...],
        draft_logprobs: tuple[float, ...],
        vocab_size: int = MAX_VOCAB,
    ) -> "Tree":
        """Return a tree whose ids are also below `vocab_size`."""
        tree = cls(tuple(parents), tuple(token_ids), tuple(sources), tuple(draft_logprobs))
        tree.check_vocabulary(vocab_size)
        return tree

    @property
    def num_nodes(self) -> int:
        """Return the number of live nodes."""
        return len(self.parents)

    def children(self, node: int) -> tuple[int, ...]:
        """Return the node's children in ascending order."""
        whole(node, 0, self.num_nodes - 1, "node")
        return tuple(index for index, parent in enumerate(self.parents) if parent == node)

    def path_to(self, node: int) -> tuple[int, ...]:
        """Return the nodes from the root to `node`, both included; at most 16."""
        whole(node, 0, self.num_nodes - 1, "node")
        path = [node]
        while node > 0:
            node = self.parents[node]
            path.append(node)
        return tuple(reversed(path))

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse a tree with an id of `vocab_size` or more."""
        largest = max(self.token_ids)
        if largest >= vocab_size:
            message = f"id {largest}; the vocabulary has {vocab_size}; send ids below it"
            raise InvalidField("TOKEN_OUT_OF_VOCABULARY", message, "token_ids")


def _check_lengths(tree: Tree) -> None:
    count = len(tree.parents)
    if not 1 <= count <= MAX_ROWS:
        message = f"tree has {count} nodes; allowed are 1..{MAX_ROWS}; use a smaller shape"
        raise InvalidField("TREE_SIZE", message, "parents")
    for name in ("token_ids", "sources", "draft_logprobs"):
        length = len(getattr(tree, name))
        if length != count:
            message = f"{length} entries for {count} nodes; send one a node"
            raise InvalidField("TREE_COLUMN", message, name)


def _checked_depths(parents: tuple[int, ...]) -> tuple[int, ...]:
    if set(map(type, parents)) != {int}:
        raise InvalidField("NOT_AN_INTEGER", "a parent is not an integer", "parents")
    if parents[0] != -1:
        message = f"node 0 has parent {parents[0]}; the root's is -1"
        raise InvalidField("TREE_ROOT", message, "parents")
    depths = [0]
    for node in range(1, len(parents)):
        parent = parents[node]
        if not 0 <= parent < node:
            _refuse_parent(node, parent)
        depths.append(depths[parent] + 1)
    if max(depths) > MAX_DEPTH:
        message = f"a path has {max(depths) + 1} nodes; limit {MAX_PATH}; use a shallower shape"
        raise InvalidField("PATH_LENGTH", message, "parents")
    return tuple(depths)


def _refuse_parent(node: int, parent: int) -> None:
    if parent == -1:
        message = f"node {node} is a second root; only node 0 has parent -1"
        raise InvalidField("TREE_ROOT", message, "parents")
    message = f"node {node} has parent {parent}; a parent is a live node before its child"
    raise InvalidField("PARENT_ORDER", message, "parents")


def _check_tokens(token_ids: tuple[int, ...]) -> None:
    if set(map(type, token_ids)) != {int}:
        raise InvalidField("NOT_AN_INTEGER", "a token id is not an integer", "token_ids")
    if min(token_ids) < 0 or max(token_ids) >= MAX_VOCAB:
        message = f"an id is outside 0..{MAX_VOCAB - 1}"
        raise InvalidField("TOKEN_OUT_OF_VOCABULARY", message, "token_ids")


def _check_sources(sources: tuple[int, ...]) -> None:
    if sources[0] != NodeSource.ROOT:
        raise InvalidField("NODE_SOURCE", f"node 0 has source {sources[0]}; use ROOT", "sources")
    strange = set(sources[1:]) - CANDIDATE_SOURCES
    if strange:
        message = f"source {min(strange)} on a candidate; use one of {sorted(CANDIDATE_SOURCES)}"
        raise InvalidField("NODE_SOURCE", message, "sources")


def _checked_logprobs(values: tuple[float, ...]) -> tuple[float, ...]:
    for value in values:
        if not MIN_LOGPROB <= value <= 0.0:
            message = f"{value} is outside [{MIN_LOGPROB}, 0]"
            raise InvalidField("DRAFT_LOGPROB", message, "draft_logprobs")
    if values[0] != 0.0:
        message = f"the root has {values[0]}; it is certain: 0"
        raise InvalidField("DRAFT_LOGPROB", message, "draft_logprobs")
    packed = struct.Struct(f"<{len(values)}f")
    return packed.unpack(packed.pack(*values))
