"""Live trace of verified steps: bounded queues of whoever watches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from services.contract.tree import TreeTag
from services.gateway.requests import Delta

MAX_STEPS = 256


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One verified step with whose it is and how many this watcher lost before it."""

    tag: TreeTag
    delta: Delta
    num_lost: int


@dataclass(eq=False, slots=True)
class Watcher:
    """One watcher's queue; a full queue loses the newest step and counts it."""

    tenant: str
    request_id: str
    queue: asyncio.Queue[TracedStep] = field(default_factory=lambda: asyncio.Queue(MAX_STEPS))
    num_lost: int = 0


class TraceHub:
    """Hand verified steps to watchers; costs nothing while nobody watches."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()

    def open(self, tenant: str, request_id: str) -> Watcher:
        """Return a watcher of one request of a tenant, or of all of them with an empty id."""
        watcher = Watcher(tenant, request_id)
        self._watchers.add(watcher)
        return watcher

    def close(self, watcher: Watcher) -> None:
        """Stop handing steps to a watcher."""
        self._watchers.discard(watcher)

    def publish(self, tenant: str, tag: TreeTag, delta: Delta) -> None:
        """Hand one step of a tenant's request to everyone of the tenant who watches it."""
        for watcher in self._watchers:
            if watcher.tenant == tenant and watcher.request_id in ("", tag.request_id):
                self._offer(watcher, TracedStep(tag, delta, watcher.num_lost))

    def _offer(self, watcher: Watcher, step: TracedStep) -> None:
        try:
            watcher.queue.put_nowait(step)
        except asyncio.QueueFull:
            watcher.num_lost += 1
