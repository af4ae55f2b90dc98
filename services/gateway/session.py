"""One public request while it runs: submits its choices, gathers their events in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from services.contract import pb
from services.contract.errors import ExhaustedError
from services.gateway.front import Door
from services.gateway.live import LiveRequests, Ticket
from services.gateway.requests import Delta, Event, Finished, FinishReason, GenerationRequest
from services.gateway.translate import GenerateRequest, Resolved

MAX_EVENTS = 4096
MAX_PENDING = 8192
gen = pb.generation_pb2


@dataclass(frozen=True, slots=True)
class ChoiceEvent:
    """An event of one choice."""

    choice_index: int
    event: Event


class Session:
    """The live side of one request; its id is free again when it is closed.

    Events cross from the engine's thread into the event loop through a bounded queue. A
    reader that falls behind by more than MAX_PENDING tree nodes and log-probabilities loses its
    request, never the server.

    Numbers a pending node costs at most about 100 bytes: a stopped reader costs < 1 MiB.
    """

    def __init__(
        self, clock: Door, requests: LiveRequests, ticket: Ticket, resolved: Resolved
    ) -> None:
        self.ticket = ticket
        self.resolved = resolved
        self._requests = requests
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[ChoiceEvent] = asyncio.Queue(MAX_EVENTS)
        self._is_slow = False
        self._is_closed = False
        self._is_submitted = False
        self._pending = 0

    def start(self, request: GenerateRequest) -> None:
        """Submit every choice; all or none.

        Raises  what `Door.submit` raises.
        """
        output = request.output
        skip = output.skip_special_tokens if output.HasField("skip_special_tokens") else True
        for index in range(self.resolved.num_choices):
            try:
                self._clock.submit(self._choice(request, index, skip))
                self._is_submitted = True
            except Exception:
                self.close()
                raise

    def close(self) -> None:
        """Stop what still runs and forget what is unread; safe to call again."""
        self._is_closed = True
        self.cancel()
        self._requests.leave(self.ticket)
        while not self._queue.empty():
            self._queue.get_nowait()

    def cancel(self) -> None:
        """Stop all choices before their next cycle."""
        if self._is_submitted:
            self._clock.cancel(self.ticket.engine_id)

    async def events(self) -> AsyncGenerator[ChoiceEvent, None]:
        """Yield events until every choice has ended.

        Raises  the error that ended a choice; ExhaustedError if this reader is too slow.
        """
        live = self.resolved.num_choices
        while live:
            item = await self._queue.get()
            self._pending -= _weight(item.event)
            if self._is_slow:
                text = "too many events are unread; read faster or ask for fewer tokens"
                raise ExhaustedError("SLOW_READER", text)
            if isinstance(item.event, Finished):
                live -= 1
                if item.event.reason is FinishReason.ERROR and item.event.error is not None:
                    self.cancel()
                    raise item.event.error
            yield item

    def _choice(
        self, request: GenerateRequest, index: int, skip_special_tokens: bool
    ) -> GenerationRequest:
        resolved = self.resolved
        return GenerationRequest(
            request_id=self.ticket.engine_id,
            choice_index=index,
            prompt_ids=resolved.prompt_ids,
            sampling=resolved.sampling,
            budget=resolved.budget,
            drafting=resolved.drafting,
            sink=lambda event: self._push(ChoiceEvent(index, event)),
            stop=resolved.stop,
            include_stop=request.stop.include_stop,
            skip_special_tokens=skip_special_tokens,
            wants_digest=request.speculation.digests,
            time_limit_ms=float(resolved.time_limit_ms),
        )

    def _push(self, item: ChoiceEvent) -> None:
        """Hand an event to the event loop; called from the engine's thread."""
        try:
            self._loop.call_soon_threadsafe(self._put, item)
        except RuntimeError:
            self._is_slow = True  # the loop has closed: nobody reads any more

    def _put(self, item: ChoiceEvent) -> None:
        if self._is_closed:
            return
        weight = _weight(item.event)
        if self._queue.full() or self._pending + weight > MAX_PENDING:
            self._is_slow = True
            self.cancel()
            return
        self._pending += weight
        self._queue.put_nowait(item)


def _weight(event: Event) -> int:
    if not isinstance(event, Delta):
        return 1
    return event.tree.num_nodes + sum(1 + len(one.top) for one in event.logprobs)
