"""What the drafter knows of one live sequence."""

from __future__ import annotations

from dataclasses import dataclass

from services.contract import pb
from services.contract.checks import token_ids, whole
from services.contract.errors import InvalidField
from services.contract.limits import MAX_DEPTH, MAX_PATH
from services.contract.tree import TreeTag
from services.drafter.adaptive import Spine
from services.drafter.calibration import Calibration
from services.drafter.draft import Draft
from services.drafter.lookup import RequestText
from services.drafter.passes import NewRows
from services.drafter.probes import Probe
from services.drafter.shape import Shape
from services.runtime.ring_guard import SlotRecord


@dataclass(slots=True)
class DraftedSequence:
    """A sequence, how it is drafted, and its last tree.

    Args    text: None where suffixes are off. probe: a test drafter in place of MTP and suffix.
            uses_mtp: whether its rows go through the MTP block.
    """

    record: SlotRecord
    shape: Shape
    text: RequestText | None
    probe: Probe | None
    calibration: Calibration
    uses_mtp: bool
    num_emitted: int = 0
    root: int = -1
    last: Draft | None = None

    def check_tokens(self, part: pb.stage_pb2.CycleSequence, vocab_size: int) -> None:
        """Refuse ids that the vocabulary, the cycle or the previous tree cannot have."""
        emitted = token_ids(part.previous_emitted_ids, vocab_size, MAX_PATH, "previous_emitted_ids")
        token_ids(part.forced_ids, vocab_size, MAX_DEPTH, "forced_ids")
        root = whole(part.root_id, 0, vocab_size - 1, "root_id")
        if bool(emitted) != (self.record.cycle > 0):
            text = f"{len(emitted)} ids before cycle {self.record.cycle}; none only before cycle 0"
            raise InvalidField("EMITTED", text, "previous_emitted_ids")
        if root != (emitted[-1] if emitted else self.root):
            text = "not the token that was emitted last; send the pending token"
            raise InvalidField("ROOT", text, "root_id")
        if emitted and self.last is not None and len(self._walk(emitted)) != len(emitted):
            text = "the emitted ids are no path of the previous tree; send the accepted ones"
            raise InvalidField("EMITTED", text, "previous_emitted_ids")

    def new_rows(self, part: pb.stage_pb2.CycleSequence, max_depth: int) -> NewRows | None:
        """Return the rows that the last cycle materialised; None where there is no such row."""
        passes = 0 if part.forced_ids else min(self.shape.num_passes, max_depth)
        slot, length = self.record.ref.slot, part.committed_length
        emitted = tuple(part.previous_emitted_ids)
        if not emitted:
            # The last prompt row; a prompt of one token has none.
            emitted = (part.root_id,)
        nodes = self._walk(emitted) or (0,)
        if length < len(emitted):
            return None
        watch = Spine(self.text, self.calibration) if self.shape.is_adaptive and passes else None
        ring = (self.record.cycle - 1) & 1
        start, sampling = length - len(emitted), self.record.sampling
        return NewRows(slot, start, emitted, nodes, ring, passes, watch, sampling)

    def advance(self, part: pb.stage_pb2.CycleSequence, draft: Draft) -> None:
        """Move on to the tree of this cycle."""
        self.record.length = part.committed_length
        self.record.cycle += 1
        self.root = part.root_id
        self.last = draft

    def max_depth(self, committed_length: int, context_length: int) -> int:
        """Return how deep a draft may be accepted, given the budget and the context."""
        budget = self.record.budget
        room = min(budget.context_length, context_length) - committed_length - 2
        return max(0, min(MAX_DEPTH, budget.max_tokens - self.num_emitted - 1, room))

    def tag(self, epoch: int, part: pb.stage_pb2.CycleSequence) -> TreeTag:
        """Return the tag of this cycle's tree."""
        record = self.record
        return TreeTag(
            record.request_id,
            record.choice_index,
            epoch,
            part.cycle,
            part.committed_length,
            record.ref.slot,
            record.ref.generation,
        )

    def _walk(self, emitted: tuple[int, ...]) -> tuple[int, ...]:
        """Return the nodes whose rows were materialised: the root and all accepted ones."""
        draft = self.last
        if draft is None:
            return ()
        nodes = [0]
        for token in emitted[:-1]:
            matching = [c for c in draft.children(nodes[-1]) if draft.tokens[c] == token]
            if not matching:
                return ()
            nodes.append(matching[0])
        return tuple(nodes)
