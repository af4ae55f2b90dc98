"""The three stages as Ray actors on one host, joined by sockets and shared memory."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from services.contract.config import EngineConfig
from services.contract.errors import ContractError, TooLargeError, UnavailableError
from services.contract.failure import failure_from_error
from services.contract.limits import STAGE_MESSAGE_BYTES
from services.contract.wire import parse
from services.model.config import ModelConfig
from services.runtime import ipc
from services.runtime.log import get_logger
from services.runtime.owners import shared_sizes
from services.runtime.placement import StageActors
from services.runtime.ray_session import RaySession
from services.runtime.seat import GatewayEnd, Seat
from services.runtime.sockets import GATEWAY, RING
from services.runtime.stage import StageMessage
from services.runtime.wiring import NotWritableError, end_hung, wire_stages

_LOG = get_logger("runtime.ray_group")
_RETRY_SECONDS: Final = (0.05, 2.0)
_CONTROL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Times of a group: the most that one message may take around the ring, and a load."""

    round_s: float = 60.0
    load_s: float = 1800.0


class RayGroup:
    """Run the ring over actors (see StageGroup); a dead or hung stage is restarted.

    A thread waits for the ring's end. It then lets Ray restart what died, loads and wires the
    stages under a new epoch, and the group serves again; sequences of the old epoch are lost.

    Args    kinds: stage -> actor class.
    """

    def __init__(
        self,
        model: ModelConfig,
        config: EngineConfig,
        kinds: Mapping[str, Any],
        session: RaySession,
        options: RayOptions | None = None,
    ) -> None:
        self.model, self.config = model, config
        self.mode = ipc.transport_of(config.device)
        self._options = options or RayOptions()
        self._session = session
        self._name = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._epoch = self._sequence_number = 0
        self._live: set[int] = set()
        self._owes_loss = self._is_serving = False
        self._ring: GatewayEnd | None = None
        self._seat: Seat | None = None
        self._host = ""
        self._paths: dict[str, str] = {}
        self._actors = StageActors(kinds, config.device)
        try:
            self._wire_first()
            session.check_attached(self.stage_pids())
        except BaseException:
            self._give_back()
            raise
        self._thread = threading.Thread(target=self._watch, name="ray-group", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        """Return the wiring generation."""
        return self._epoch

    @property
    def vocab_size(self) -> int:
        """Return the number of token ids."""
        return self.model.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Return the model's end tokens."""
        return self.model.eos_ids

    def send(self, message: StageMessage) -> StageMessage:
        """Run the ring once; the message gets its epoch and number here.

        Raises  UnavailableError when a stage died or hangs: live sequences are lost.
        """
        ring = self._begin(message)
        try:
            data = ring.round(message.SerializeToString(), self._options.round_s)
        except TooLargeError as error:
            self._sequence_number -= 1
            return StageMessage(failure=failure_from_error(GATEWAY, error))
        except UnavailableError:
            self._lose()
            ring.close()
            raise
        self._follow(message)
        return parse(StageMessage, data, STAGE_MESSAGE_BYTES)

    def health(self) -> dict[str, bool]:
        """Say of each stage whether it serves: none does while the ring is broken."""
        return dict.fromkeys(RING, self._is_serving)

    def stats(self) -> dict[str, Any]:
        """Return each stage's counters, the engine fingerprint and the transport mode."""
        try:
            stages = self._actors.call("stats", timeout_s=_CONTROL_SECONDS)
        except UnavailableError:
            stages = {}
        print_ = stages.get("verifier", {}).get("fingerprint", {})
        return {
            "mode": self.mode,
            "epoch": self._epoch,
            "fingerprint": print_,
            "stages": stages,
        }

    def stage_pids(self) -> dict[str, int]:
        """Return the process of each stage."""
        found = self._actors.call("status", timeout_s=_CONTROL_SECONDS)
        return {name: int(status["pid"]) for name, status in found.items()}

    def arm(self, stage: str, points: str) -> None:
        """Arm failpoints in one stage's process; refused outside test mode."""
        self._actors.call_one(stage, "arm", points, timeout_s=_CONTROL_SECONDS)

    def close(self) -> None:
        """End the actors, give back their place and memory."""
        self._closed.set()
        self._is_serving = False
        if self._ring is not None:
            self._ring.close()
        self._thread.join(2 * _CONTROL_SECONDS)
        try:
            self._actors.call("drain", timeout_s=_CONTROL_SECONDS)
        except ContractError as error:
            _LOG.warning("stage ended late", reason=error.reason)
        self._give_back()
        self._session.close()

    def _begin(self, message: StageMessage) -> GatewayEnd:
        """Number a message, or raise what happened to the sequences since the last one."""
        with self._lock:
            owed, self._owes_loss = self._owes_loss, False
            if owed or not self._is_serving or self._ring is None:
                self._live.clear()
                reason = "STAGE_DIED" if owed else "RESTARTING"
                raise UnavailableError(reason, "a stage is gone and is restarted; send again")
            self._sequence_number += 1
            message.epoch, message.sequence_number = self._epoch, self._sequence_number
            return self._ring

    def _follow(self, message: StageMessage) -> None:
        body = message.WhichOneof("body")
        if body == "admit":
            self._live.add(message.admit.slot)
        elif body == "release":
            self._live.discard(message.release.slot)

    def _lose(self) -> None:
        """Stop serving; the caller tells the scheduler that its sequences are lost."""
        with self._lock:
            self._is_serving = self._owes_loss = False
            self._live.clear()

    def _watch(self) -> None:
        while not self._closed.is_set():
            if self._ring is not None:
                self._ring.wait_closed()
            if self._closed.is_set():
                return
            with self._lock:
                self._owes_loss = self._is_serving and bool(self._live)
                self._is_serving = False
            _LOG.warning("ring ended", epoch=self._epoch)
            self._recover()

    def _recover(self) -> None:
        """Wire again until it works; the wait between attempts doubles."""
        delay, most = _RETRY_SECONDS
        hung = True
        while not self._closed.is_set():
            try:
                if hung:
                    end_hung(self._actors)
                    hung = False
                self._wire()
                return
            except Exception as error:  # whatever it was, the group must come back
                _LOG.warning("wiring failed", kind=type(error).__name__, why=str(error))
            self._closed.wait(delay)
            delay = min(2 * delay, most)

    def _wire_first(self) -> None:
        """Wire in the first mode whose probe passes; the group keeps that mode."""
        try:
            self._wire()
        except NotWritableError as error:
            self.mode = ipc.read_only(self.mode)
            _LOG.warning("importers cannot write", mode=self.mode, why=error.message)
            self._actors.restart("committer")  # a failed write may have broken its device
            self._wire()

    def _wire(self) -> None:
        if self._ring is not None:
            self._ring.close()
        seat = self._seat_now()
        self._epoch += 1
        ring = seat.ring(self._name, self._epoch)
        limits = self._epoch, self._options.load_s
        try:
            wire_stages(self._actors, ring, self.config, self._paths, *limits, self.mode)
        except BaseException:
            ring.close()
            raise
        with self._lock:
            self._ring, self._sequence_number, self._is_serving = ring, 0, True
        _LOG.info("stages wired", mode=self.mode, epoch=self._epoch)

    def _give_back(self) -> None:
        if self._seat is not None:
            self._seat.close()
        self._actors.close()

    def _seat_now(self) -> Seat:
        """Return the seat on the group's present host; its files are in `_paths`.

        Where the files are new but a stage still maps old ones, the stage's process ends.
        """
        host = self._actors.host()
        if self._seat is None or host != self._host:
            if self._seat is not None:
                self._seat.close()
            self._seat, self._host, self._paths = self._actors.seat(), host, {}
        sizes = shared_sizes(self.model, self.config) if self.config.device == "cpu" else {}
        paths = self._seat.files(sizes)
        if self._paths and paths != self._paths:
            for name in RING:
                self._actors.kill(name)
        self._paths = paths
        return self._seat
