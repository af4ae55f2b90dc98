"""Order on the device across processes: one interprocess event an edge and slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

SLOTS: Final = 2


class EdgeEvents:
    """The events of one edge of the ring: its producer records, its consumer waits.

    On a host device there are none: the socket's system call is the fence. A message's number
    picks the slot, so an event is recorded again only after its message came back.
    """

    def __init__(self, events: Sequence[torch.cuda.Event]) -> None:
        self._events = tuple(events)

    @classmethod
    def made_on(cls, device: str) -> EdgeEvents:
        """Return the producer's events."""
        if device == "cpu":
            return cls(())
        return cls([torch.cuda.Event(interprocess=True) for _ in range(SLOTS)])

    @classmethod
    def opened(cls, handles: Sequence[bytes], device: torch.device) -> EdgeEvents:
        """Return the consumer's view of the producer's events."""
        return cls([torch.cuda.Event.from_ipc_handle(device, handle) for handle in handles])

    @property
    def handles(self) -> list[bytes]:
        """Return what the consumer needs to open the events."""
        return [event.ipc_handle() for event in self._events]

    def record(self, number: int) -> None:
        """Mark the end of the work enqueued for a message, before it is sent."""
        if self._events:
            self._events[number % SLOTS].record()

    def wait(self, number: int) -> None:
        """Let the stream wait for the producer's work, after a message was received."""
        if self._events:
            torch.cuda.current_stream().wait_event(self._events[number % SLOTS])
