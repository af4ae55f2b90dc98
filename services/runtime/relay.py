"""The seat of a group on another host: an actor there that holds its files and its ring."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final

from services.contract.errors import UnavailableError
from services.runtime import frames
from services.runtime.frames import FrameChannel
from services.runtime.ray_session import ray
from services.runtime.ring import Ring
from services.runtime.seat import HostSeat
from services.runtime.sockets import address, downstream

_CALL_SECONDS: Final = 60.0
# The gateway's own deadline ends a round; the relay only waits as long as its stream lives.
_ROUND_SECONDS: Final = 3600.0


class RelayHost:
    """Pass messages between one stream from the gateway and the ring of this host.

    Args    host: address of this host that the gateway reaches.
    """

    def __init__(self, host: str = "") -> None:
        self._host = host or str(ray.util.get_node_ip_address())
        self._seat = HostSeat()
        self._ring: Ring | None = None
        self._listener: socket.socket | None = None
        self._stream: FrameChannel | None = None

    def files(self, sizes: Mapping[str, int]) -> dict[str, str]:
        """Return the paths of the shared files, by owner."""
        return self._seat.files(sizes)

    def open(self, name: str, epoch: int, secret: bytes) -> tuple[str, int]:
        """Make the ring of a new wiring; return where its stream is taken."""
        self.hang_up()
        self._ring = self._seat.ring(name, epoch)
        self._listener = socket.create_server((self._host, 0))
        self._secret = secret
        return self._host, int(self._listener.getsockname()[1])

    def connect(self) -> None:
        """Close the ring and serve the stream."""
        ring, listener = self._ring, self._listener
        if ring is None or listener is None:
            raise UnavailableError("NOT_WIRED", "open the relay first")
        ring.connect()
        threading.Thread(target=self._serve, args=(ring, listener), daemon=True).start()

    def hang_up(self) -> None:
        """End the present wiring."""
        for end in (self._listener, self._stream, self._ring):
            if end is not None:
                end.close()
        self._listener = self._stream = self._ring = None

    def _serve(self, ring: Ring, listener: socket.socket) -> None:
        try:
            stream = self._stream = frames.answer(listener, self._secret)
            for watched in (ring, stream):
                end = threading.Thread(target=_close_both, args=(watched, ring, stream))
                end.daemon = True
                end.start()
            while True:
                stream.send(ring.round(stream.receive(), _ROUND_SECONDS))
        except UnavailableError:
            ring.close()
        finally:
            listener.close()
            if self._stream is not None:
                self._stream.close()


def _close_both(watched: Ring | FrameChannel, ring: Ring, stream: FrameChannel) -> None:
    watched.wait_closed()
    ring.close()
    stream.close()


RelayActor = ray.remote(RelayHost)


class RelaySeat:
    """A group's seat on the host of a relay."""

    def __init__(self, relay: Any) -> None:
        self._relay = relay

    def files(self, sizes: Mapping[str, int]) -> dict[str, str]:
        """Return the paths of the shared files there, by owner."""
        return dict(_get(self._relay.files.remote(dict(sizes))))

    def ring(self, name: str, epoch: int) -> RelayedRing:
        """Return the gateway's end of a new wiring."""
        return RelayedRing(self._relay, name, epoch)

    def close(self) -> None:
        """End the relay."""
        ray.kill(self._relay, no_restart=True)


class RelayedRing:
    """The gateway's end of a ring on another host (see Ring)."""

    def __init__(self, relay: Any, name: str, epoch: int) -> None:
        self._relay, self._name, self._epoch = relay, name, epoch
        self._secret = secrets.token_bytes(frames.SECRET_BYTES)
        self._where: tuple[str, int] = _get(relay.open.remote(name, epoch, self._secret))
        self._stream: FrameChannel | None = None

    def inbox(self, stage: str) -> str:
        """Return where a stage listens."""
        return address(self._name, self._epoch, stage)

    def outbox(self, stage: str) -> str:
        """Return where a stage connects."""
        return self.inbox(downstream(stage))

    def connect(self) -> None:
        """Close the ring there and open the stream to it."""
        _get(self._relay.connect.remote())
        self._stream = frames.call(*self._where, self._secret)

    def round(self, data: bytes, deadline_s: float) -> bytes:
        """Return the ring's answer to a message (see Ring.round)."""
        if self._stream is None:
            raise RuntimeError("connect the ring first")
        self._stream.send(data)
        return self._stream.receive(deadline_s)

    def wait_closed(self) -> None:
        """Return when a stage has died, its host is gone, or the ring was closed."""
        if self._stream is not None:
            self._stream.wait_closed()

    def close(self) -> None:
        """Close the stream; the relay then closes the ring."""
        if self._stream is not None:
            self._stream.close()


def _get(call: Any) -> Any:
    try:
        return ray.get(call, timeout=_CALL_SECONDS)
    except ray.exceptions.RayError as error:
        raise UnavailableError("RELAY", "a relay is restarting; wait") from error
