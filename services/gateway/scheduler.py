"""The cycle clock: admits sequences, prefills them on the grid, runs their cycles."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from services.contract import pb
from services.contract.config import EngineConfig
from services.contract.errors import (
    ContractError,
    DuplicateError,
    ExhaustedError,
    InternalError,
    UnavailableError,
)
from services.contract.failure import error_from_failure
from services.contract.limits import MAX_QUEUE, MAX_SLAB, PAGE
from services.gateway import messages
from services.gateway.admission import check_pages, check_room
from services.gateway.requests import Finished, FinishReason, GenerationRequest
from services.gateway.sequence import Clock, Sequence
from services.gateway.speculation import SpecCounter, SpecSummary, merge
from services.gateway.text import TextCodec
from services.runtime.group import StageGroup
from services.runtime.pools import PagePool, SlotPool

# Refusals of a message that only this process can have made wrong.
_OWN_FAULT = ("INVALID_ARGUMENT", "ABORTED")


class Scheduler:
    """Drive one stage group; one thread calls `step`, any thread submits and cancels.

    One message is in flight at a time. A sequence gets its slot and all pages it may need at
    admission, so a running sequence never waits for memory.
    """

    def __init__(
        self,
        group: StageGroup,
        codec: TextCodec,
        config: EngineConfig,
        max_queue: int = MAX_QUEUE,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._group = group
        self._codec = codec
        self._config = config
        self._max_queue = max_queue
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._keys: set[tuple[str, int]] = set()
        self._ended = SpecCounter().summary()
        self._reset_pools()

    @property
    def num_waiting(self) -> int:
        """Sequences without a slot."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences that hold a slot."""
        return len(self._running)

    @property
    def speculation(self) -> SpecSummary:
        """Speculation figures of all ended sequences."""
        return self._ended

    @property
    def is_idle(self) -> bool:
        """Whether a step would do nothing."""
        return not self._waiting and not self._running

    @property
    def num_slots(self) -> int:
        """Sequences that may run at once."""
        return self._config.max_sequences

    @property
    def is_serving(self) -> bool:
        """Whether every stage of the group serves."""
        return all(self._group.health().values())

    @property
    def free_pages(self) -> int:
        """Key-value pages that nobody holds."""
        return self._pages.num_free

    def submit(self, request: GenerationRequest) -> None:
        """Queue a sequence; its sink is called from the stepping thread.

        Raises  InvalidField for a prompt the engine cannot hold, DuplicateError for a live id,
                ExhaustedError when the queue is full.
        """
        check_room(request, self._group.vocab_size, self._config.context_length)
        check_pages(self._pages_for(request), self._config.total_pages)
        with self._lock:
            if request.key in self._keys:
                text = f"request {request.request_id} is alive; send another id or none"
                raise DuplicateError("DUPLICATE_REQUEST", text, "request_id")
            if len(self._waiting) >= self._max_queue:
                text = f"{self._max_queue} requests are waiting; retry later"
                raise ExhaustedError("QUEUE_FULL", text)
            self._keys.add(request.key)
            self._waiting.append(Sequence(request, self._codec, Clock(submitted=self._clock())))

    def cancel(self, request_id: str) -> bool:
        """Stop every sequence of a request before its next cycle; say whether one was alive."""
        found = False
        with self._lock:
            for sequence in (*self._waiting, *self._running):
                if sequence.request.request_id == request_id:
                    sequence.cancelled = found = True
        return found

    def live_ids(self) -> list[str]:
        """Return the ids of all live requests."""
        with self._lock:
            return sorted({request_id for request_id, _ in self._keys})

    def step(self) -> bool:
        """Do one tick: end what is cancelled or late, admit, prefill one chunk, run the cycles.

        Returns whether there was anything to do.
        """
        if self.is_idle:
            return False
        try:
            self._sweep()
            self._admit()
            self._prefill()
            self._decode()
        except UnavailableError as error:
            self.fail_all(error)
        return True

    def fail_all(self, error: ContractError) -> None:
        """End every live sequence with an error; the group lost their state."""
        with self._lock:
            lost = [*self._running, *self._waiting]
            self._running.clear()
            self._waiting.clear()
            self._keys.clear()
            self._reset_pools()
        for sequence in lost:
            self._deliver(sequence, self._failed(sequence, error))

    def end_all(self, error: ContractError) -> None:
        """End every live sequence with an error, releasing its slot at the stages."""
        try:
            for sequence in [*self._waiting, *self._running]:
                self._end(sequence, self._failed(sequence, error))
        except ContractError:
            self.fail_all(error)

    def abort_all(self) -> None:
        """End every live sequence as aborted, releasing its slot."""
        for sequence in [*self._waiting, *self._running]:
            self._end(sequence, sequence.finish(FinishReason.ABORTED, None, self._clock()))

    def check_integrity(self) -> None:
        """Raise IntegrityError unless every slot and page is free or owned once."""
        self._slots.check_integrity()
        self._pages.check_integrity()

    def _reset_pools(self) -> None:
        self._slots = SlotPool(self._config.max_sequences)
        self._pages = PagePool(self._config.total_pages)

    def _sweep(self) -> None:
        now = self._clock()
        for sequence in [*self._waiting, *self._running]:
            limit = sequence.request.time_limit_ms
            if sequence.cancelled:
                self._end(sequence, sequence.finish(FinishReason.ABORTED, None, now))
            elif limit and (now - sequence.clock.submitted) * 1e3 > limit:
                self._end(sequence, sequence.finish(FinishReason.TIME_LIMIT, None, now))

    def _admit(self) -> None:
        while self._waiting and self._slots.num_free:
            sequence = self._waiting[0]
            try:
                pages = self._pages.allocate(self._pages_for(sequence.request))
            except ExhaustedError:
                return
            with self._lock:
                self._waiting.popleft()
                self._running.append(sequence)
            slot = self._slots.allocate(sequence.request.request_id)
            sequence.start(slot, pages, self._clock())
            self._send(messages.admit(sequence), [sequence])

    def _pages_for(self, request: GenerationRequest) -> int:
        positions = len(request.prompt_ids) + request.budget.max_tokens
        return -(-min(positions, self._config.context_length) // PAGE)

    def _prefill(self) -> None:
        sequence = next((s for s in self._running if not s.is_prefilled), None)
        if sequence is None:
            return
        message = messages.prefill(sequence, self._config.prefill_grid)
        if self._send(message, [sequence]) is None:
            return
        sequence.prefill_done(len(message.prefill.token_ids), self._clock())
        if sequence.is_prefilled and sequence.request.budget.max_tokens == 0:
            self._end(sequence, sequence.finish(FinishReason.LENGTH, None, self._clock()))

    def _decode(self) -> None:
        ready = [sequence for sequence in self._running if sequence.is_prefilled]
        for start in range(0, len(ready), MAX_SLAB):
            slab = ready[start : start + MAX_SLAB]
            begun = self._clock()
            reply = self._send(messages.cycle(slab), slab)
            if reply is not None:
                spans = {span.stage: span.step_us for span in reply.spans}
                spans["round"] = round((self._clock() - begun) * 1e6)
                self._take(slab, reply.result, spans)

    def _take(
        self, slab: list[Sequence], result: pb.stage_pb2.Result, spans: dict[str, int]
    ) -> None:
        now = self._clock()
        for sequence, part in zip(slab, result.sequences, strict=True):
            path, tree, logprobs = messages.read_result(
                part, self._group.vocab_size, self._group.epoch
            )
            digest = part.path.digest if part.path.HasField("digest") else None
            sequence.spans.update(spans)
            finished = sequence.take(path, tree, logprobs, digest, now)
            if finished is not None:
                self._end(sequence, finished)

    def _end(self, sequence: Sequence, finished: Finished) -> None:
        with self._lock:
            if sequence in self._waiting:
                self._waiting.remove(sequence)
            if sequence in self._running:
                self._running.remove(sequence)
            self._keys.discard(sequence.request.key)
        if sequence.slot is not None:
            self._send(messages.release(sequence), [])
            self._slots.free(sequence.slot)
            self._pages.free(sequence.pages)
        self._deliver(sequence, finished)

    def _send(
        self, message: pb.stage_pb2.StageMessage, concerned: list[Sequence]
    ) -> pb.stage_pb2.StageMessage | None:
        """Return the ring's answer; a refusal ends the sequences concerned and returns None."""
        reply = self._group.send(message)
        if reply.WhichOneof("body") != "failure":
            return reply
        error = error_from_failure(reply.failure)
        if error.code in _OWN_FAULT and message.WhichOneof("body") != "admit":
            error = InternalError(error.reason, error.message)
        for sequence in concerned:
            self._end(sequence, self._failed(sequence, error))
        return None

    def _failed(self, sequence: Sequence, error: ContractError) -> Finished:
        finished = sequence.finish(FinishReason.ERROR, None, self._clock())
        return replace(finished, error=error)

    def _deliver(self, sequence: Sequence, finished: Finished) -> None:
        self._ended = merge([self._ended, finished.speculation])
        sequence.request.sink(finished)
