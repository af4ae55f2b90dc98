"""The gateway's end of one wiring of the ring."""

from __future__ import annotations

from services.runtime.sockets import (
    GATEWAY,
    RING,
    Channel,
    Listener,
    address,
    connect,
    downstream,
)

_CONNECT_SECONDS = 30.0


class Ring:
    """Send a message to the drafter, receive it from the committer.

    Args    name: of the stage group, hard to guess. epoch: wiring generation.
    """

    def __init__(self, name: str, epoch: int) -> None:
        self._name, self._epoch = name, epoch
        self._listener = Listener(self.inbox(GATEWAY))
        self._out: Channel | None = None
        self._back: Channel | None = None

    def inbox(self, stage: str) -> str:
        """Return where a stage listens."""
        return address(self._name, self._epoch, stage)

    def outbox(self, stage: str) -> str:
        """Return where a stage connects."""
        return self.inbox(downstream(stage))

    def connect(self) -> None:
        """Close the ring, once every stage listens and has connected."""
        self._out = connect(self.inbox(RING[0]), _CONNECT_SECONDS)
        self._back = self._listener.accept(_CONNECT_SECONDS)

    def round(self, data: bytes, deadline_s: float) -> bytes:
        """Return the ring's answer to a message.

        Raises  TooLargeError above the limit, before anything is sent; RingClosedError if a
                stage died; StageHungError after the deadline.
        """
        if self._out is None or self._back is None:
            raise RuntimeError("connect the ring first")
        self._out.send(data)
        return self._back.receive(deadline_s)

    def wait_closed(self) -> None:
        """Return when a stage has died or the ring was closed."""
        if self._back is not None:
            self._back.wait_closed()

    def close(self) -> None:
        """Close the ring; every stage's loop ends."""
        self._listener.close()
        for channel in (self._out, self._back):
            if channel is not None:
                channel.close()
