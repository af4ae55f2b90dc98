"""Where a group's shared files and ring ends are: on this host, or behind a relay on another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from services.runtime.ipc.host import SharedFile
from services.runtime.ring import Ring


class GatewayEnd(Protocol):
    """The gateway's end of one wiring (see Ring)."""

    def inbox(self, stage: str) -> str:
        """Return where a stage listens."""
        ...

    def outbox(self, stage: str) -> str:
        """Return where a stage connects."""
        ...

    def connect(self) -> None:
        """Close the ring, once every stage listens and has connected."""
        ...

    def round(self, data: bytes, deadline_s: float) -> bytes:
        """Return the ring's answer to a message."""
        ...

    def wait_closed(self) -> None:
        """Return when a stage has died or the ring was closed."""
        ...

    def close(self) -> None:
        """Close the ring; every stage's loop ends."""
        ...


class Seat(Protocol):
    """What a group needs on the host of its stages."""

    def files(self, sizes: Mapping[str, int]) -> dict[str, str]:
        """Return the paths of the shared files, by owner; the same ones at every call."""
        ...

    def ring(self, name: str, epoch: int) -> GatewayEnd:
        """Return the gateway's end of a new wiring."""
        ...

    def close(self) -> None:
        """Give the files up."""
        ...


class HostSeat:
    """A group's seat on this host."""

    def __init__(self) -> None:
        self._files: dict[str, SharedFile] = {}

    def files(self, sizes: Mapping[str, int]) -> dict[str, str]:
        """Return the paths of the shared files, by owner; the same ones at every call."""
        if not self._files:
            self._files = {owner: SharedFile(owner, size) for owner, size in sizes.items()}
        return {owner: file.path for owner, file in self._files.items()}

    def ring(self, name: str, epoch: int) -> Ring:
        """Return the gateway's end of a new wiring."""
        return Ring(name, epoch)

    def close(self) -> None:
        """Give the files up."""
        for file in self._files.values():
            file.close()
