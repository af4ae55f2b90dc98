"""The three stages in one process: no export, no socket; the bit-equality reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.contract.errors import UnavailableError
from services.model.config import ModelConfig
from services.runtime.stage import RingStage, StageMessage


class LocalGroup:
    """Run the ring by calling one stage after the other (see StageGroup).

    Args    stages: drafter, verifier, committer; wired for `epoch`.
    """

    mode = "inproc"

    def __init__(self, model: ModelConfig, stages: Sequence[RingStage], epoch: int = 1) -> None:
        self.model = model
        self.stages = tuple(stages)
        self._epoch = epoch
        self._sequence_number = 0
        self._failed: str = ""

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
            text = f"{self._failed} broke earlier; build the group again"
            raise UnavailableError("STAGE_DIED", text)
        self._sequence_number += 1
        message.epoch, message.sequence_number = self._epoch, self._sequence_number
        for stage in self.stages:
            try:
                message = stage.step(message)
            except Exception as error:
                self._failed = stage.name
                text = f"{stage.name} broke: {type(error).__name__}; build the group again"
                raise UnavailableError("STAGE_DIED", text) from error
        return message

    def health(self) -> dict[str, bool]:
        """Say of each stage whether it serves."""
        return {stage.name: stage.name != self._failed for stage in self.stages}

    def stats(self) -> dict[str, Any]:
        """Return each stage's counters and the transport mode."""
        stages = {stage.name: stage.stats() for stage in self.stages}
        return {"mode": self.mode, "epoch": self._epoch, "stages": stages}

    def close(self) -> None:
        """Free the stages' memory; the group is of no more use."""
        for stage in self.stages:
            stage.close()
        self._failed = "every stage"
