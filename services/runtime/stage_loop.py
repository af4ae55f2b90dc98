"""The hot loop of one stage: one thread on its socket."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from services.contract.errors import ContractError, TooLargeError, UnavailableError
from services.contract.limits import STAGE_MESSAGE_BYTES
from services.contract.wire import parse
from services.kernels.threads import use_threads
from services.runtime.ipc.events import EdgeEvents
from services.runtime.log import get_logger
from services.runtime.ring_guard import refuse
from services.runtime.sockets import Channel, Listener, RingClosedError
from services.runtime.stage import RingStage, StageMessage

_LOG = get_logger("runtime.stage_loop")
_JOIN_SECONDS = 5.0
_ACCEPT_SECONDS = 60.0


@dataclass(slots=True)
class LoopCounts:
    """Messages taken from the upstream, and answers given to the downstream."""

    received: int = 0
    answered: int = 0


class StageLoop:
    """Receive, wait for the upstream's device work, step, record, send; until the ring ends.

    Args    core: where the thread stays. on_defect: called on the loop's thread when the stage
            raised what is no contract error; its state can no longer be trusted.
    """

    def __init__(
        self,
        stage: RingStage,
        inbox: Listener,
        outbox: Channel,
        upstream: EdgeEvents,
        own: EdgeEvents,
        threads: int,
        core: int,
        on_defect: Callable[[BaseException], None],
    ) -> None:
        self.counts = LoopCounts()
        self._stage, self._inbox, self._outbox = stage, inbox, outbox
        self._upstream, self._own = upstream, own
        self._threads, self._core, self._on_defect = threads, core, on_defect
        self._channel: Channel | None = None
        self._is_stopped = False
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"{stage.name}-loop", daemon=True)

    def start(self) -> None:
        """Start the thread; it first takes the upstream's connection."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop.

        Raises  UnavailableError if the stage hangs in a step.
        """
        with self._guard:
            self._is_stopped = True
        self._inbox.close()
        self._outbox.close()
        if self._channel is not None:
            self._channel.close()
        self._thread.join(_JOIN_SECONDS)
        if self._thread.is_alive():
            text = f"{self._stage.name} hangs in a step; end its process"
            raise UnavailableError("STAGE_HUNG", text)

    def _run(self) -> None:
        use_threads(self._threads)
        os.sched_setaffinity(0, {self._core})
        try:
            channel = self._inbox.accept(_ACCEPT_SECONDS)
            if self._keep(channel):
                while True:
                    self._round(channel)
        except RingClosedError:
            _LOG.info("ring ended", stage=self._stage.name)
        except BaseException as error:
            _LOG.error("stage broke", stage=self._stage.name, kind=type(error).__name__)
            self._on_defect(error)
        finally:
            self._outbox.close()
            if self._channel is not None:
                self._channel.close()

    def _keep(self, channel: Channel) -> bool:
        """Make a channel the one that `stop` closes; close it if `stop` came before."""
        with self._guard:
            if self._is_stopped:
                channel.close()
            else:
                self._channel = channel
            return not self._is_stopped

    def _round(self, channel: Channel) -> None:
        data = channel.receive()
        self.counts.received += 1
        answer = self._answer(data)
        self._own.record(answer.sequence_number)
        self._outbox.send(self._within_limit(answer))
        self.counts.answered += 1

    def _answer(self, data: bytes) -> StageMessage:
        try:
            message = parse(StageMessage, data, STAGE_MESSAGE_BYTES)
        except ContractError as error:
            return refuse(self._stage.name, error, StageMessage())
        self._upstream.wait(message.sequence_number)
        return self._stage.step(message)

    def _within_limit(self, answer: StageMessage) -> bytes:
        data: bytes = answer.SerializeToString()
        if len(data) <= STAGE_MESSAGE_BYTES:
            return data
        text = f"an answer of {len(data)} bytes; limit {STAGE_MESSAGE_BYTES}; ask for less at once"
        error = TooLargeError("STAGE_MESSAGE_SIZE", text)
        return bytes(refuse(self._stage.name, error, answer).SerializeToString())
