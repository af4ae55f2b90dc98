"""The three stages in one process: no export, no socket; the bit-equality reference."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from services.contract.errors import UnavailableError
from services.model.config import ModelConfig
from services.runtime.log import get_logger
from services.runtime.stage import RingStage, StageMessage

_LOG = get_logger("runtime.local")
MAX_REBUILDS: Final = 3
_EVERY: Final = "every stage"
Rebuild = Callable[[int], Sequence[RingStage]]


class LocalGroup:
    """Run the ring by calling one stage after the other (see StageGroup).

    A stage that breaks takes the group out of service; a thread builds the stages again under
    the next epoch. After MAX_REBUILDS of them without an answer in between the group stays out.

    Args    stages: drafter, verifier, committer; wired for `epoch`. rebuild: returns the three
            stages of an epoch; without it a broken group stays broken.
    """

    mode = "inproc"

    def __init__(
        self,
        model: ModelConfig,
        stages: Sequence[RingStage],
        epoch: int = 1,
        rebuild: Rebuild | None = None,
    ) -> None:
        self.model = model
        self.stages = tuple(stages)
        self._epoch = epoch
        self._sequence_number = 0
        self._failed: str = ""
        self._rebuild = rebuild
        self._rebuilds = 0
        self._repair: threading.Thread | None = None

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

    def warmup(self) -> None:
        """Prepare every stage."""
        for stage in self.stages:
            stage.warmup()

    def send(self, message: StageMessage) -> StageMessage:
        """Run the ring once; the message gets its epoch and number here.

        Raises  UnavailableError when a stage broke: its state can no longer be trusted.
        """
        if self._failed:
            text = f"{self._failed} broke and the group is not back; send again later"
            raise UnavailableError("RESTARTING", text)
        self._sequence_number += 1
        message.epoch, message.sequence_number = self._epoch, self._sequence_number
        for stage in self.stages:
            try:
                message = stage.step(message)
            except Exception as error:
                self._lose(stage.name)
                text = f"{stage.name} broke: {type(error).__name__}; send again"
                raise UnavailableError("STAGE_DIED", text) from error
        self._rebuilds = 0
        return message

    def health(self) -> dict[str, bool]:
        """Say of each stage whether it serves."""
        return {stage.name: self._failed not in (stage.name, _EVERY) for stage in self.stages}

    def stats(self) -> dict[str, Any]:
        """Return each stage's counters and the transport mode."""
        stages = {stage.name: stage.stats() for stage in self.stages}
        return {"mode": self.mode, "epoch": self._epoch, "stages": stages}

    def close(self) -> None:
        """Free the stages' memory; the group is of no more use."""
        if self._repair is not None:
            self._repair.join()
        self._rebuild = None
        if not self._failed:
            self._close_stages()
        self._failed = _EVERY

    def _lose(self, name: str) -> None:
        """Stop serving, and build again where that is known to work and may help."""
        self._failed = name
        _LOG.error("stage broke", stage=name, epoch=self._epoch)
        if self._rebuild is None or self._rebuilds >= MAX_REBUILDS:
            return
        self._rebuilds += 1
        self._repair = threading.Thread(target=self._build_again, args=(self._rebuild,))
        self._repair.start()

    def _build_again(self, rebuild: Rebuild) -> None:
        self._close_stages()
        try:
            self.stages = tuple(rebuild(self._epoch + 1))
            self.warmup()
        except Exception as error:  # the group stays out of service and health says so
            _LOG.error("rebuild failed", kind=type(error).__name__)
            return
        self._epoch, self._sequence_number = self._epoch + 1, 0
        _LOG.info("stages rebuilt", epoch=self._epoch)
        self._failed = ""

    def _close_stages(self) -> None:
        for stage in self.stages:
            stage.close()
