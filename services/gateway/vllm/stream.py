"""Feed vLLM's pieces through the same sequence code that our own cycles feed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from services.contract.path import AcceptedPath, CutReason, EmittedLogprobs
from services.contract.tree import Tree
from services.gateway.requests import Finished, FinishReason, Started
from services.gateway.sequence import Sequence
from services.gateway.speculation import SpecCounter, SpecSummary
from services.gateway.vllm.native import Piece

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


@dataclass(slots=True)
class Stream:
    """One sequence at vLLM: its text, ids, stops and usage agree as those of our engine do.

    Args    drafts: whether vLLM drafts, which it tells of whole sequences only.
    """

    sequence: Sequence
    drafts: bool
    speculation: SpecSummary | None = None

    @property
    def has_begun(self) -> bool:
        """Whether vLLM has answered."""
        return self.sequence.prefill_sent

    def take(self, piece: Piece, now: float) -> Finished | None:
        """Add one piece; return the end if the sequence ends with it."""
        if not self.has_begun:
            self._begin(piece, now)
        self.speculation = piece.speculation or self.speculation
        if self.sequence.request.budget.max_tokens == 0:
            return self.finish(FinishReason.LENGTH, now)
        for index, token in enumerate(piece.token_ids):
            is_last = index == len(piece.token_ids) - 1
            reason = self._cut(token, piece.finish) if is_last else CutReason.NONE
            finished = self._add(token, piece.logprobs[index : index + 1], reason, now)
            if finished is not None:
                return self._told(finished)
        if not piece.finish:
            return None
        return self.finish(_REASONS.get(piece.finish, FinishReason.ABORTED), now)

    def finish(self, reason: FinishReason, now: float) -> Finished:
        """Return the end event of a sequence that no token ended."""
        return self._told(self.sequence.finish(reason, None, now))

    def _begin(self, piece: Piece, now: float) -> None:
        sequence = self.sequence
        sequence.clock.admitted = min(sequence.clock.submitted + piece.queue_s, now)
        sequence.request.sink(Started(queue_ms=piece.queue_s * 1e3))
        sequence.prefill_done(len(sequence.request.prompt_ids) - 1, now)

    def _add(
        self, token: int, logprobs: tuple[EmittedLogprobs, ...], reason: CutReason, now: float
    ) -> Finished | None:
        path = AcceptedPath(
            nodes=(0,),
            emitted_ids=(token,),
            pending_id=token,
            committed_length=self.sequence.committed_length + 1,
            cut_reason=reason,
            cut_index=-1 if reason is CutReason.NONE else 0,
        )
        return self.sequence.take(path, Tree.root_only(self.sequence.root_id), logprobs, None, now)

    def _cut(self, token: int, finish: str) -> CutReason:
        budget = self.sequence.request.budget
        if finish == "stop":
            return CutReason.EOS if token in budget.eos_ids else CutReason.STOP_ID
        return CutReason.BUDGET if finish == "length" else CutReason.NONE

    def _told(self, finished: Finished) -> Finished:
        """Replace counts of steps that vLLM merged or drafted by its own figures, or by none."""
        if not self.drafts:
            return finished
        return replace(finished, speculation=self.speculation or SpecCounter().summary())
