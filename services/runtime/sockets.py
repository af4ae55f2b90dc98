"""The ring's wires: SEQPACKET unix sockets without files, for processes of one user."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
import zlib
from collections.abc import Collection
from typing import Final

from services.contract.errors import TooLargeError, UnavailableError
from services.contract.limits import STAGE_MESSAGE_BYTES

GATEWAY: Final = "gateway"
RING: Final = ("drafter", "verifier", "committer")
_CREDENTIALS: Final = struct.Struct("3i")


class RingClosedError(UnavailableError):
    """The other end of an edge is gone."""


class StageHungError(UnavailableError):
    """A message did not come back in time."""


def address(ring: str, epoch: int, stage: str) -> str:
    """Return where a stage listens for its upstream: an abstract name, so no file is left."""
    return f"\0lumotree-{ring}-{epoch}-{stage}"


def core_of(name: str, cores: Collection[int]) -> int:
    """Return the core on which all stages that listen in a ring take their messages.

    Numbers one message is in flight, so the stages of a ring never run at once: on one core
            what a stage wrote is still in its cache for the next, and no idle core must wake.
    """
    ring = name.rsplit("-", 2)[0]
    return sorted(cores)[zlib.crc32(ring.encode()) % len(cores)]


def downstream(stage: str) -> str:
    """Return who takes a stage's answers."""
    order = (*RING, GATEWAY)
    return order[order.index(stage) + 1]


def check_size(data: bytes) -> None:
    """Raise TooLargeError for a message above the limit."""
    if len(data) > STAGE_MESSAGE_BYTES:
        text = f"{len(data)} bytes; limit {STAGE_MESSAGE_BYTES}; ask for less at once"
        raise TooLargeError("STAGE_MESSAGE_SIZE", text)


class Channel:
    """One end of an edge; a message is one packet."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, data: bytes) -> None:
        """Send a message.

        Raises  TooLargeError above the limit; RingClosedError if the other end is gone.
        """
        check_size(data)
        try:
            self._socket.send(data)
        except OSError as error:
            raise _closed() from error

    def receive(self, deadline_s: float | None = None) -> bytes:
        """Return the next message.

        Raises  RingClosedError at the end; StageHungError if none came in time.
        """
        try:
            if self._socket.gettimeout() != deadline_s:
                self._socket.settimeout(deadline_s)
            data = self._socket.recv(STAGE_MESSAGE_BYTES + 1)
        except TimeoutError:
            text = f"no answer within {deadline_s:g} s; a stage hangs and is restarted"
            raise StageHungError("STAGE_HUNG", text) from None
        except OSError as error:
            raise _closed() from error
        if not data:
            raise _closed()
        return data

    def wait_closed(self) -> None:
        """Return when the other end, or this one, is closed; data does not wake it."""
        poll = select.poll()
        try:
            poll.register(self._socket.fileno(), select.POLLRDHUP)
            poll.poll()
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Close both directions; whoever waits on this end wakes up."""
        _shut(self._socket)


class Listener:
    """Where the upstream of a stage connects, once."""

    def __init__(self, name: str) -> None:
        self._socket = _new_socket()
        self._socket.bind(name)
        self._socket.listen(1)

    def accept(self, timeout_s: float) -> Channel:
        """Return the edge from the upstream; callers of other users are turned away.

        Raises  RingClosedError if none came in time.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
                connected, _ = self._socket.accept()
                if _is_ours(connected):
                    return Channel(_sized(connected))
                connected.close()
        except OSError as error:
            raise _closed() from error
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening; whoever waits in `accept` wakes up."""
        _shut(self._socket)


def connect(name: str, timeout_s: float) -> Channel:
    """Return the edge to a downstream that listens already.

    Raises  RingClosedError if nobody of this user does.
    """
    connecting = _new_socket()
    try:
        connecting.settimeout(timeout_s)
        connecting.connect(name)
        connecting.settimeout(None)
    except OSError as error:
        connecting.close()
        raise _closed() from error
    if not _is_ours(connecting):
        connecting.close()
        raise _closed()
    return Channel(connecting)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other end may have been first
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _new_socket() -> socket.socket:
    return _sized(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))


def _sized(end: socket.socket) -> socket.socket:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * STAGE_MESSAGE_BYTES)
    return end


def _is_ours(connected: socket.socket) -> bool:
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(raw)[1] == os.geteuid())


def _closed() -> RingClosedError:
    return RingClosedError("STAGE_DIED", "a stage is gone and is restarted; send again")
