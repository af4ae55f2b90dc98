"""The tree of at most 27 candidates with the highest expected accepted length."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from services.contract.limits import MAX_DEPTH
from services.contract.tree import NodeSource
from services.drafter.calibration import NONE, Calibration, mtp_cell, suffix_cell
from services.drafter.draft import Draft, Marginals
from services.drafter.lookup import Place, Proposal, RequestText, proposals
from services.drafter.shape import ADAPTIVE_RANKS, MAX_CANDIDATES

FLOOR: Final = 1e-4
LOOKUP_FLOOR: Final = 0.02
# How often a pass is right when the spine before it was, and the share of a token that it must
# gain to be run: about half of what a cycle emits in the time of a pass on a CPU, as later passes
# gain too.
PASS_HIT: Final = 0.8
PASS_GAIN: Final = 0.15
# What one more row costs as a share of the rest of a cycle, where rows are not fixed: measured on
# a CPU with two threads, 0.09 of 6.5 ms (one thread: 0.15 ms).
ROW_COST: Final = 0.014


class _Candidate(NamedTuple):
    """A node that may be added, best first: the order of the heap."""

    cost: float
    order: int
    parent: int
    token: int
    source: NodeSource
    mtp: int
    suffix: int
    probability: float
    places: list[Place]


class Spine:
    """Follow the MTP spine while it is drafted, and say when another pass is worth its time."""

    def __init__(self, text: RequestText | None, calibration: Calibration) -> None:
        self._text = text
        self._calibration = calibration
        self._tokens: list[int] = []
        self._reach = 1.0
        self._found = proposals(text.look_up()) if text else []

    def take(self, token: int, logprob: float) -> bool:
        """Add the last pass's best token; return whether the next one promises enough.

        A pass gains what it adds to the best suffix proposal, if the spine is right so far.
        """
        copy = next((found for found in self._found if found.token == token), None)
        self._reach *= self._calibration.probability(mtp_cell(0, logprob), _cell(copy))
        self._tokens.append(token)
        places = copy.places if copy else self._text.look_up(self._tokens) if self._text else []
        self._found = proposals(places)
        copied = self._calibration.probability(NONE, _cell(self._found[0] if self._found else None))
        return self._reach * (PASS_HIT - copied) >= PASS_GAIN


class Growth:
    """Best-first growth of one tree: always the candidate most likely to be reached and right.

    A node's chance is the product of the calibrated chances on its path; a set of nodes closed
    under parents with the highest chances is the tree of the highest expected accepted length.
    Args    row_cost: 0 where rows cost nothing; else growth ends where the tokens a cycle is
            expected to emit no longer grow faster than its cost.
    """

    def __init__(
        self,
        text: RequestText | None,
        marginals: Marginals,
        calibration: Calibration,
        row_cost: float = 0.0,
    ) -> None:
        self._row_cost = row_cost
        self._text = text
        self._marginals = marginals
        self._calibration = calibration
        self._heap: list[_Candidate] = []
        self._order = 0

    def run(self, root: int, max_candidates: int = MAX_CANDIDATES) -> Draft:
        """Return the tree grown from `root`, with at most `max_candidates` other nodes."""
        draft, expected = Draft.root(root), 1.0
        on_spine = [True]
        self._propose(draft, 0, 1.0, True, self._text.look_up() if self._text else [])
        while self._heap and draft.num_nodes <= max_candidates:
            best = heappop(self._heap)
            if -best.cost * (1.0 + self._row_cost * draft.num_nodes) < self._row_cost * expected:
                break
            expected -= best.cost
            node = draft.add(best.parent, best.token, best.source, best.probability)
            draft.cells[node] = (best.mtp, best.suffix)
            spine = on_spine[best.parent] and best.source == NodeSource.MTP_SPINE
            on_spine.append(spine)
            if draft.depths[node] < MAX_DEPTH:
                self._propose(draft, node, -best.cost, spine, self._places(draft, node, best))
        return draft

    def _places(self, draft: Draft, node: int, taken: _Candidate) -> Sequence[Place]:
        if taken.places or self._text is None or -taken.cost < LOOKUP_FLOOR:
            return taken.places
        return self._text.look_up(draft.path(node)[1:])

    def _propose(
        self, draft: Draft, node: int, reach: float, on_spine: bool, places: Sequence[Place]
    ) -> None:
        depth = draft.depths[node]
        found = {p.token: p for p in proposals(places)} if places else {}
        ranked = self._marginals.ranked(depth, ADAPTIVE_RANKS) if on_spine else []
        for rank, (token, logprob) in enumerate(ranked):
            copy = found.pop(token, None)
            source = NodeSource.MTP_RUNNER_UP if rank else NodeSource.MTP_SPINE
            cell, after = mtp_cell(rank, logprob), copy.places if copy else []
            self._push(node, reach, token, source, cell, _cell(copy), after)
        source = NodeSource.SUFFIX_TAIL if on_spine else _continued(draft.sources[node])
        for copy in found.values():
            self._push(node, reach, copy.token, source, NONE, _cell(copy), copy.places)

    def _push(
        self,
        parent: int,
        reach: float,
        token: int,
        source: NodeSource,
        mtp: int,
        suffix: int,
        places: list[Place],
    ) -> None:
        chance = self._calibration.probability(mtp, suffix)
        if reach * chance >= FLOOR:
            self._order += 1
            entry = (-reach * chance, self._order, parent, token, source, mtp, suffix, chance)
            heappush(self._heap, _Candidate(*entry, places))


def _cell(copy: Proposal | None) -> int:
    return NONE if copy is None else suffix_cell(copy.length, copy.copies, copy.total)


def _continued(source: NodeSource) -> NodeSource:
    if source in (NodeSource.MTP_RUNNER_UP, NodeSource.SUFFIX_RESCUE):
        return NodeSource.SUFFIX_RESCUE
    return NodeSource.SUFFIX_TAIL


def learn(draft: Draft, emitted: Sequence[int], calibration: Calibration) -> None:
    """Count which proposals along the accepted path, and beside it, were right.

    Nodes without cells (forced tokens, test drafters) teach nothing.
    """
    node = 0
    for token in emitted:
        taken = None
        for child in draft.children(node):
            was_right = draft.tokens[child] == token
            if child in draft.cells:
                calibration.learn(*draft.cells[child], was_right)
            if was_right and taken is None:
                taken = child
        if taken is None:
            return
        node = taken
