"""Host state of one live sequence: where it stands, what it emitted, what it showed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from services.contract.path import AcceptedPath, CutReason, EmittedLogprobs
from services.contract.span import SlotRef
from services.contract.tree import Tree
from services.gateway.requests import (
    Delta,
    Finished,
    FinishReason,
    GenerationRequest,
    Prefilled,
    Started,
    Timing,
)
from services.gateway.speculation import SpecCounter
from services.gateway.text import Detokenizer, StopMatcher, TextCodec

_DEVICE_REASONS = {
    CutReason.EOS: FinishReason.STOP,
    CutReason.STOP_ID: FinishReason.STOP,
    CutReason.BUDGET: FinishReason.LENGTH,
    CutReason.CONTEXT: FinishReason.LENGTH,
}


@dataclass(slots=True)
class Clock:
    """Moments of one sequence in seconds; 0 is not reached."""

    submitted: float
    admitted: float = 0.0
    prefilled: float = 0.0
    first_token: float = 0.0

    def timing(self, now: float) -> Timing:
        """Return the spans up to `now`."""
        admitted = self.admitted or now
        prefilled = self.prefilled or now
        first = self.first_token or now
        return Timing(
            queue_ms=(admitted - self.submitted) * 1e3,
            prefill_ms=(prefilled - admitted) * 1e3,
            ttft_ms=(first - self.submitted) * 1e3,
            decode_ms=(now - first) * 1e3,
        )


@dataclass(slots=True)
class Sequence:
    """One sequence from submission to its end.

    Args    slot and pages: set at admission. done: prompt tokens prefilled.
    """

    request: GenerationRequest
    codec: TextCodec
    clock: Clock
    slot: SlotRef | None = None
    pages: list[int] = field(default_factory=list)
    done: int = 0
    cycle: int = 0
    committed_length: int = 0
    root_id: int = 0
    previous_emitted: tuple[int, ...] = ()
    emitted: list[int] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    spec: SpecCounter = field(default_factory=SpecCounter)
    spans: Counter[str] = field(default_factory=Counter)
    cancelled: bool = False
    prefill_sent: bool = False
    _detokenizer: Detokenizer = field(init=False)
    _stops: StopMatcher = field(init=False)

    def __post_init__(self) -> None:
        self._detokenizer = Detokenizer(self.codec, self.request.skip_special_tokens)
        self._stops = StopMatcher(self.request.stop, self.request.include_stop)
        self.committed_length = len(self.request.prompt_ids) - 1
        self.root_id = self.request.prompt_ids[-1]

    @property
    def is_prefilled(self) -> bool:
        """Whether the next message is a cycle."""
        return self.prefill_sent and self.done >= len(self.request.prompt_ids) - 1

    def start(self, slot: SlotRef, pages: list[int], now: float) -> None:
        """Take a slot and pages."""
        self.slot, self.pages, self.clock.admitted = slot, pages, now
        self.request.sink(Started(queue_ms=(now - self.clock.submitted) * 1e3))

    def prefill_done(self, count: int, now: float) -> None:
        """Count prompt tokens that were processed."""
        self.prefill_sent = True
        self.done += count
        total = len(self.request.prompt_ids)
        if self.is_prefilled:
            self.clock.prefilled = now
        self.request.sink(Prefilled(done=min(self.done + self.is_prefilled, total), total=total))

    def take(
        self,
        path: AcceptedPath,
        tree: Tree,
        logprobs: tuple[EmittedLogprobs, ...],
        digest: bytes | None,
        now: float,
    ) -> Finished | None:
        """Add one cycle's path; return the end if the sequence ends with it.

        A stop string cuts text, ids and log-probabilities behind the token completing it.
        """
        self.clock.first_token = self.clock.first_token or now
        texts, kept = self._show(path)
        text = "".join(texts)
        emitted = path.emitted_ids[:kept]
        self.spec.add(tree, path.nodes[: kept + 1])
        self.emitted.extend(emitted)
        end = self._end_of(path)
        if end is not None and self._stops.matched is None:
            text += self._stops.push(self._detokenizer.flush()) + self._stops.flush()
        self.shown.append(text)
        self.request.sink(
            Delta(
                text=text,
                token_ids=emitted,
                logprobs=logprobs[:kept],
                cycle=self.cycle,
                tree=tree,
                nodes=path.nodes,
                committed_length=path.committed_length,
                digest=digest,
            )
        )
        self._advance(path)
        return None if end is None else self.finish(*end, now)

    def finish(self, reason: FinishReason, matched: str | int | None, now: float) -> Finished:
        """Return the end event of this sequence."""
        return Finished(
            reason=reason,
            matched_stop=matched,
            token_ids=tuple(self.emitted),
            text="".join(self.shown),
            prompt_tokens=len(self.request.prompt_ids),
            timing=self.clock.timing(now),
            speculation=self.spec.summary(),
            spans_ms={name: us / 1e3 for name, us in sorted(self.spans.items())},
        )

    def _advance(self, path: AcceptedPath) -> None:
        self.cycle += 1
        self.committed_length = path.committed_length
        self.root_id = path.pending_id
        self.previous_emitted = path.emitted_ids

    def _show(self, path: AcceptedPath) -> tuple[list[str], int]:
        """Return the text of the tokens up to a stop string, and how many they are."""
        texts = []
        for index, token in enumerate(path.emitted_ids):
            if self._is_silent_end(path, index):
                continue
            texts.append(self._stops.push(self._detokenizer.push(token)))
            if self._stops.matched is not None:
                return texts, index + 1
        return texts, len(path.emitted_ids)

    def _is_silent_end(self, path: AcceptedPath, index: int) -> bool:
        ends = path.cut_reason in (CutReason.EOS, CutReason.STOP_ID)
        return ends and index == path.cut_index and not self.request.include_stop

    def _end_of(self, path: AcceptedPath) -> tuple[FinishReason, str | int | None] | None:
        if self._stops.matched is not None:
            return FinishReason.STOP, self._stops.matched
        if path.cut_reason is CutReason.NONE:
            return None
        reason = _DEVICE_REASONS[path.cut_reason]
        return reason, path.emitted_ids[-1] if reason is FinishReason.STOP else None
