"""Messages over a stream socket between hosts: a length, then the bytes; a secret first."""

from __future__ import annotations

import contextlib
import hmac
import select
import socket
import struct
from typing import Final

from services.contract.limits import STAGE_MESSAGE_BYTES
from services.runtime.sockets import RingClosedError, StageHungError, check_size

SECRET_BYTES: Final = 32
_LENGTH: Final = struct.Struct("!I")
_HANDSHAKE_SECONDS: Final = 10.0


class FrameChannel:
    """One end of a stream between the gateway and a relay."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected

    def send(self, data: bytes) -> None:
        """Send a message.

        Raises  TooLargeError above the limit; RingClosedError if the other end is gone.
        """
        check_size(data)
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise _closed() from error

    def receive(self, deadline_s: float | None = None) -> bytes:
        """Return the next message.

        Raises  RingClosedError at the end or for a frame above the limit; StageHungError if
                none came in time.
        """
        self._socket.settimeout(deadline_s)
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > STAGE_MESSAGE_BYTES:
            raise _closed()
        return self._exactly(length)

    def wait_closed(self) -> None:
        """Return when the other end, or this one, is closed; data does not wake it."""
        poll = select.poll()
        try:
            poll.register(self._socket.fileno(), select.POLLRDHUP)
            poll.poll()
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Close both directions."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(count - len(parts))
            except TimeoutError:
                text = "no answer in time; a stage hangs and is restarted"
                raise StageHungError("STAGE_HUNG", text) from None
            except OSError as error:
                raise _closed() from error
            if not part:
                raise _closed()
            parts += part
        return bytes(parts)


def call(host: str, port: int, secret: bytes) -> FrameChannel:
    """Return a channel to a relay that knows the secret.

    Raises  RingClosedError if it is not there.
    """
    try:
        connected = socket.create_connection((host, port), _HANDSHAKE_SECONDS)
        connected.sendall(secret)
    except OSError as error:
        raise _closed() from error
    return FrameChannel(connected)


def answer(listener: socket.socket, secret: bytes) -> FrameChannel:
    """Return a channel to the first caller that knows the secret; others are turned away.

    Raises  RingClosedError when the listener is closed.
    """
    while True:
        try:
            connected, _ = listener.accept()
        except OSError as error:
            raise _closed() from error
        channel = FrameChannel(connected)
        connected.settimeout(_HANDSHAKE_SECONDS)
        with contextlib.suppress(RingClosedError, StageHungError):
            if hmac.compare_digest(channel._exactly(SECRET_BYTES), secret):
                return channel
        channel.close()


def _closed() -> RingClosedError:
    return RingClosedError("STAGE_DIED", "a stage host is gone; send again")
