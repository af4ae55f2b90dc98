"""Fill a fixed shape with tokens: MTP proposals on and beside the spine, suffix runs elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from services.contract.tree import NodeSource
from services.drafter.draft import Draft, Marginals
from services.drafter.lookup import Place, Proposal, RequestText, proposals
from services.drafter.shape import Shape


def fill_shape(shape: Shape, root: int, marginals: Marginals, text: RequestText | None) -> Draft:
    """Return the tree of `shape`; a node nobody proposes is left out with all below it.

    Args    text: where suffixes are looked up; None leaves the suffix nodes out.
    """
    filling = _Filling(shape, root, marginals, text)
    for node in range(1, shape.num_nodes):
        filling.fill(node)
    return filling.draft


class _Filling:
    """Place of each shape node in the draft, and what continues it by suffix."""

    def __init__(
        self, shape: Shape, root: int, marginals: Marginals, text: RequestText | None
    ) -> None:
        self.draft = Draft.root(root)
        self._shape = shape
        self._marginals = marginals
        self._text = text
        self._place: dict[int, int] = {0: 0}
        self._matches: dict[int, Sequence[Place]] = {}
        self._proposals: dict[int, list[Proposal]] = {}

    def fill(self, node: int) -> None:
        """Add one node of the shape, if its parent is there and something proposes it."""
        parent, rank = self._shape.parents[node], self._shape.ranks[node]
        if parent not in self._place:
            return
        source = self._shape.sources[node]
        if source in (NodeSource.MTP_SPINE, NodeSource.MTP_RUNNER_UP):
            ranked = self._marginals.ranked(self.draft.depths[self._place[parent]], rank + 1)
            if rank < len(ranked):
                token, logprob = ranked[rank]
                self._add(node, token, source, exp(logprob))
            return
        found = self._continuations(parent)
        if rank < len(found):
            best = found[rank]
            self._add(node, best.token, source, best.copies / best.total)
            self._matches[node] = best.places

    def _add(self, node: int, token: int, source: NodeSource, probability: float) -> None:
        parent = self._place[self._shape.parents[node]]
        self._place[node] = self.draft.add(parent, token, source, probability)

    def _continuations(self, node: int) -> list[Proposal]:
        if self._text is None:
            return []
        if node not in self._proposals:
            matches = self._matches.get(node)
            if matches is None:
                matches = self._text.look_up(self.draft.path(self._place[node])[1:])
            self._proposals[node] = proposals(matches)
        return self._proposals[node]
