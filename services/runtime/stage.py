"""The life of a stage: guard a message, do its part, answer or refuse."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, Protocol

from services.contract import pb
from services.contract.errors import ContractError, InvalidField
from services.runtime.failpoints import reach
from services.runtime.ring_guard import RingGuard, SlotTable, refuse

StageMessage = pb.stage_pb2.StageMessage


class RingStage(Protocol):
    """What a runtime needs of a stage."""

    name: str

    def warmup(self) -> None:
        """Prepare everything that a first message would otherwise pay for."""
        ...

    def step(self, message: StageMessage) -> StageMessage:
        """Do this stage's part of a message; on a contract error nothing changes."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return counters and the engine fingerprint."""
        ...

    def close(self) -> None:
        """Drop every reference to device memory."""
        ...


class Stage(ABC):
    """Guard, time and answer messages; a subclass does the work of each body.

    A message that an earlier stage refused passes through. A contract error becomes a Failure
    body; any other exception leaves the stage, whose process or group then ends.
    """

    name: str

    def __init__(self, epoch: int, num_slots: int) -> None:
        self.guard = RingGuard(epoch)
        self.slots = SlotTable(num_slots)
        self._counts = {"messages": 0, "refusals": 0, "cycles": 0, "sequences": 0}

    def step(self, message: StageMessage) -> StageMessage:
        """Do this stage's part of a message."""
        start = time.perf_counter()
        self._counts["messages"] += 1
        if message.WhichOneof("body") == "failure":
            self.guard.pass_on(message)
            return message
        reach(f"{self.name}.receive")
        try:
            self.guard.accept(message)
            reply = self._dispatch(message)
        except ContractError as error:
            self._counts["refusals"] += 1
            return refuse(self.name, error, message)
        reach(f"{self.name}.send")
        span = reply.spans.add()
        span.stage, span.step_us = self.name, int((time.perf_counter() - start) * 1e6)
        return reply

    def rewire(self, epoch: int) -> None:
        """Forget every sequence and take messages of a new wiring."""
        self.guard = RingGuard(epoch)
        self.slots = SlotTable(self.slots.num_slots)

    def stats(self) -> dict[str, Any]:
        """Return the message counters."""
        return {"stage": self.name, "epoch": self.guard.epoch, **self._counts}

    @abstractmethod
    def admit(self, message: StageMessage) -> StageMessage:
        """Start a sequence."""

    @abstractmethod
    def prefill(self, message: StageMessage) -> StageMessage:
        """Take prompt tokens of one sequence."""

    @abstractmethod
    def cycle(self, message: StageMessage) -> StageMessage:
        """Run one round of the sequences of a slab."""

    @abstractmethod
    def release(self, message: StageMessage) -> StageMessage:
        """End a sequence."""

    def _dispatch(self, message: StageMessage) -> StageMessage:
        body = message.WhichOneof("body")
        if body == "cycle":
            self._counts["cycles"] += 1
            self._counts["sequences"] += len(message.cycle.sequences)
            return self.cycle(message)
        if body in ("admit", "prefill", "release"):
            handler = {"admit": self.admit, "prefill": self.prefill, "release": self.release}
            return handler[body](message)
        text = f"body {body or 'missing'}; send admit, prefill, cycle or release"
        raise InvalidField("BODY", text, "body")
