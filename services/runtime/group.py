"""A wired ring of the three stages, whatever carries its messages."""

from __future__ import annotations

from typing import Any, Protocol

from services.contract import pb


class StageGroup(Protocol):
    """Send one message around the ring and read the group's state.

    `send` sets the epoch and the message number. It returns a Result or a Failure body and
    raises UnavailableError when a stage died: the group's sequences are then lost, and after
    its restart `epoch` has grown.
    """

    @property
    def epoch(self) -> int:
        """Return the wiring generation."""
        ...

    @property
    def vocab_size(self) -> int:
        """Return the number of token ids."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Return the model's end tokens."""
        ...

    def send(self, message: pb.stage_pb2.StageMessage) -> pb.stage_pb2.StageMessage:
        """Run the ring once."""
        ...

    def health(self) -> dict[str, bool]:
        """Say of each stage whether it serves."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return each stage's counters, the engine fingerprint and the transport mode."""
        ...

    def close(self) -> None:
        """Stop the stages and free their memory."""
        ...
