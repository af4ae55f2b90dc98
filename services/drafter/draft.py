"""A tree while it grows, and the MTP proposals it grows from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log

from services.contract.limits import MIN_LOGPROB
from services.contract.tree import NodeSource, Tree


@dataclass(slots=True)
class Marginals:
    """Hold what each MTP pass proposed: row d has the best tokens of depth d + 1, best first."""

    tokens: list[list[int]] = field(default_factory=list)
    logprobs: list[list[float]] = field(default_factory=list)

    def ranked(self, depth: int, count: int) -> list[tuple[int, float]]:
        """Return up to `count` proposals for the children of a spine node at `depth`."""
        if depth >= len(self.tokens):
            return []
        return list(zip(self.tokens[depth][:count], self.logprobs[depth][:count], strict=True))

    def spine(self) -> list[int]:
        """Return the most likely token of each pass."""
        return [row[0] for row in self.tokens]


@dataclass(slots=True)
class Draft:
    """Hold the nodes of a tree in the order they were added; cells are for learning."""

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    sources: list[NodeSource]
    logprobs: list[float]
    cells: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def root(cls, token: int) -> Draft:
        """Return the tree of the pending token alone."""
        return cls([token], [-1], [0], [NodeSource.ROOT], [0.0])

    @classmethod
    def chain(cls, root: int, tokens: Iterable[int], source: NodeSource) -> Draft:
        """Return the chain of `tokens` below `root`."""
        draft = cls.root(root)
        for token in tokens:
            draft.add(draft.num_nodes - 1, token, source, 1.0)
        return draft

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes, root included."""
        return len(self.tokens)

    def add(self, parent: int, token: int, source: NodeSource, probability: float) -> int:
        """Append a node and return its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.sources.append(source)
        self.logprobs.append(log(min(probability, 1.0)) if probability > 0 else MIN_LOGPROB)
        return len(self.tokens) - 1

    def children(self, node: int) -> list[int]:
        """Return the children of a node in ascending order."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def path(self, node: int) -> list[int]:
        """Return the tokens from the root to `node`, both included."""
        tokens = []
        while node >= 0:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tokens[::-1]

    def tree(self) -> Tree:
        """Return the checked tree."""
        return Tree(
            tuple(self.parents), tuple(self.tokens), tuple(self.sources), tuple(self.logprobs)
        )


def trimmed(draft: Draft, max_depth: int) -> Draft:
    """Return the draft without nodes deeper than `max_depth`."""
    if max(draft.depths) <= max_depth:
        return draft
    kept = [node for node, depth in enumerate(draft.depths) if depth <= max_depth]
    place = {-1: -1, **{node: index for index, node in enumerate(kept)}}
    return Draft(
        [draft.tokens[node] for node in kept],
        [place[draft.parents[node]] for node in kept],
        [draft.depths[node] for node in kept],
        [draft.sources[node] for node in kept],
        [draft.logprobs[node] for node in kept],
        {place[node]: draft.cells[node] for node in kept if node in draft.cells},
    )
