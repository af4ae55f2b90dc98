"""Where requests go into vLLM: one task a sequence on vLLM's event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from services.contract.config import EngineConfig
from services.contract.errors import (
    ContractError,
    DuplicateError,
    ExhaustedError,
    InternalError,
    UnavailableError,
)
from services.contract.limits import MAX_QUEUE
from services.gateway.admission import check_room
from services.gateway.requests import Finished, FinishReason, GenerationRequest
from services.gateway.sequence import Clock, Sequence
from services.gateway.speculation import SpecCounter, SpecSummary, merge
from services.gateway.text import TextCodec
from services.gateway.vllm.native import Llm
from services.gateway.vllm.stream import Stream
from services.runtime.log import get_logger

_LOG = get_logger("gateway.vllm")
_STUCK_SECONDS = 600.0
Key = tuple[str, int]


@dataclass(slots=True)
class _Live:
    """A sequence that has not ended; its task exists once the loop has seen it."""

    stream: Stream
    task: asyncio.Task[Finished] | None = None
    is_cancelled: bool = False


class VllmDoor:
    """Offer what the front needs over vLLM; any thread submits and cancels.

    vLLM takes sequences in order and computes up to `max_sequences` at once; the rest wait.
    """

    def __init__(
        self,
        llm: Llm,
        loop: asyncio.AbstractEventLoop,
        codec: TextCodec,
        config: EngineConfig,
        vocab_size: int,
        drafts: bool = False,
        max_queue: int = MAX_QUEUE,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._llm = llm
        self._loop = loop
        self._codec = codec
        self._config = config
        self._vocab_size = vocab_size
        self._drafts = drafts
        self._max_queue = max_queue
        self._clock = clock
        self._lock = threading.Lock()
        self._live: dict[Key, _Live] = {}
        self._ended = SpecCounter().summary()
        self._draining = False
        self._moved = time.monotonic()

    @property
    def scheduler(self) -> VllmDoor:
        """Return what tells the load."""
        return self

    @property
    def num_running(self) -> int:
        """Sequences that vLLM may compute."""
        return min(len(self._live), self._config.max_sequences)

    @property
    def num_waiting(self) -> int:
        """Sequences beyond those."""
        return len(self._live) - self.num_running

    @property
    def free_pages(self) -> int:
        """Return 0: vLLM keeps its own pages."""
        return 0

    @property
    def speculation(self) -> SpecSummary:
        """Speculation figures of all ended sequences."""
        return self._ended

    @property
    def is_idle(self) -> bool:
        """Whether nothing lives."""
        return not self._live

    @property
    def is_stuck(self) -> bool:
        """Whether live sequences have got nothing for ten minutes."""
        return not self.is_idle and time.monotonic() - self._moved > _STUCK_SECONDS

    def live_ids(self) -> list[str]:
        """Return the ids of all live requests."""
        with self._lock:
            return sorted({request_id for request_id, _ in self._live})

    def start(self) -> None:
        """Do nothing: vLLM's loop runs."""

    def submit(self, request: GenerationRequest) -> None:
        """Queue a sequence; its sink is called from vLLM's loop.

        Raises  InvalidField for a prompt it cannot hold, DuplicateError for a live id,
                ExhaustedError when the queue is full, UnavailableError when it cannot serve.
        """
        if self._draining:
            raise UnavailableError("DRAINING", "the server is stopping; try another one")
        if self._llm.is_dead:
            raise UnavailableError("ENGINE_DEAD", "vLLM's engine died; restart the server")
        check_room(request, self._vocab_size, self._config.context_length)
        with self._lock:
            if request.key in self._live:
                text = f"request {request.request_id} is alive; send another id or none"
                raise DuplicateError("DUPLICATE_REQUEST", text, "request_id")
            if len(self._live) >= self._config.max_sequences + self._max_queue:
                text = f"{self._max_queue} requests are waiting; retry later"
                raise ExhaustedError("QUEUE_FULL", text)
            if not self._live:
                self._moved = time.monotonic()
            sequence = Sequence(request, self._codec, Clock(submitted=self._clock()))
            live = self._live[request.key] = _Live(Stream(sequence, self._drafts))
        self._loop.call_soon_threadsafe(self._spawn, live)

    def cancel(self, request_id: str) -> bool:
        """Stop every sequence of a request; say whether one was alive."""
        with self._lock:
            found = [live for key, live in self._live.items() if key[0] == request_id]
        for live in found:
            live.is_cancelled = True
            self._loop.call_soon_threadsafe(_cancel, live)
        return bool(found)

    def drain(self, timeout_s: float) -> bool:
        """Refuse new sequences, wait for the live ones; say whether all of them ended."""
        self._draining = True
        return self._wait(timeout_s)

    def stop(self) -> None:
        """End what still lives as ABORTED."""
        self._draining = True
        for request_id in self.live_ids():
            self.cancel(request_id)
        self._wait(30.0)

    def _wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self.is_idle and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.is_idle

    def _spawn(self, live: _Live) -> None:
        live.task = self._loop.create_task(self._run(live.stream))
        live.task.add_done_callback(lambda task: self._end(live, task))
        if live.is_cancelled:
            live.task.cancel()

    async def _run(self, stream: Stream) -> Finished:
        request = stream.sequence.request
        limit = request.time_limit_ms / 1e3 or None
        name = f"{request.request_id}/{request.choice_index}"
        try:
            async with asyncio.timeout(limit), aclosing(self._llm.stream(name, request)) as pieces:
                async for piece in pieces:
                    self._moved = time.monotonic()
                    finished = stream.take(piece, self._clock())
                    if finished is not None:
                        return finished
        except TimeoutError:
            return stream.finish(FinishReason.TIME_LIMIT, self._clock())
        raise InternalError("NO_END", "vLLM ended a sequence without a reason")

    def _end(self, live: _Live, task: asyncio.Task[Finished]) -> None:
        finished = self._result(live.stream, task)
        with self._lock:
            self._live.pop(live.stream.sequence.request.key, None)
            self._ended = merge([self._ended, finished.speculation])
        live.stream.sequence.request.sink(finished)

    def _result(self, stream: Stream, task: asyncio.Task[Finished]) -> Finished:
        if task.cancelled():
            return stream.finish(FinishReason.ABORTED, self._clock())
        error = task.exception()
        if error is None:
            return task.result()
        return replace(
            stream.finish(FinishReason.ERROR, self._clock()), error=self._contract_error(error)
        )

    def _contract_error(self, error: BaseException) -> ContractError:
        if isinstance(error, ContractError):
            return error
        _LOG.error("vllm failed", kind=type(error).__name__)
        if self._llm.is_dead:
            return UnavailableError("ENGINE_DEAD", "vLLM's engine died; restart the server")
        return InternalError("ENGINE", f"vLLM failed: {type(error).__name__}")


def _cancel(live: _Live) -> None:
    if live.task is not None:
        live.task.cancel()
