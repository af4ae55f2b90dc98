"""The ring's wires: packets, limits, ends, deadlines; one loop; a relay between hosts."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from services.contract import pb
from services.contract.errors import TooLargeError, UnavailableError
from services.contract.limits import STAGE_MESSAGE_BYTES
from services.runtime import frames
from services.runtime.ipc.events import EdgeEvents
from services.runtime.ring import Ring
from services.runtime.sockets import (
    RING,
    Channel,
    Listener,
    RingClosedError,
    StageHungError,
    address,
    connect,
    core_of,
)
from services.runtime.stage import StageMessage
from services.runtime.stage_loop import StageLoop

CORE = min(os.sched_getaffinity(0))


class Echo:
    """A stage that returns what it gets, waits, or breaks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wait_s = 0.0
        self.breaks = False

    def warmup(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def stats(self) -> dict[str, int]:
        """Nothing."""
        return {}

    def step(self, message: StageMessage) -> StageMessage:
        """Answer."""
        time.sleep(self.wait_s)
        if self.breaks:
            raise ZeroDivisionError
        message.spans.add(stage=self.name)
        return message


class Wired:
    """Three echoing stages in threads of this process."""

    def __init__(self) -> None:
        self.ring = Ring(secrets.token_hex(4), 1)
        self.stages = {name: Echo(name) for name in RING}
        self.defects: list[BaseException] = []
        inboxes = {name: Listener(self.ring.inbox(name)) for name in RING}
        self.loops = [self._loop(name, inboxes[name]) for name in RING]
        for loop in self.loops:
            loop.start()
        self.ring.connect()

    def _loop(self, name: str, inbox: Listener) -> StageLoop:
        outbox, none = connect(self.ring.outbox(name), 5.0), EdgeEvents(())
        return StageLoop(self.stages[name], inbox, outbox, none, none, 1, CORE, self.defects.append)

    def close(self) -> None:
        """End everything."""
        self.ring.close()
        for loop in self.loops:
            loop.stop()


@pytest.fixture
def wired() -> Iterator[Wired]:
    made = Wired()
    yield made
    made.close()


def _message() -> bytes:
    message = StageMessage(epoch=1, sequence_number=1, cycle=pb.stage_pb2.Cycle())
    return message.SerializeToString()


def test_a_message_visits_every_stage_in_order(wired: Wired) -> None:
    reply = StageMessage.FromString(wired.ring.round(_message(), 5.0))
    assert [span.stage for span in reply.spans] == list(RING)
    wired.close()  # ends the loops: a stage counts its answer after it has sent it
    assert [loop.counts.answered for loop in wired.loops] == [1, 1, 1]


def test_malformed_bytes_are_refused_and_the_ring_lives(wired: Wired) -> None:
    reply = StageMessage.FromString(wired.ring.round(b"\xff\xff\xff", 5.0))
    assert reply.failure.reason == "InvalidField"
    assert StageMessage.FromString(wired.ring.round(_message(), 5.0)).HasField("cycle")


def test_a_message_at_the_limit_passes_and_one_byte_more_is_refused() -> None:
    name = address(secrets.token_hex(4), 1, "x")
    listener = Listener(name)
    sender, receiver = connect(name, 1.0), listener.accept(1.0)
    sender.send(b"x" * STAGE_MESSAGE_BYTES)
    assert len(receiver.receive(1.0)) == STAGE_MESSAGE_BYTES
    with pytest.raises(TooLargeError):
        sender.send(b"x" * (STAGE_MESSAGE_BYTES + 1))
    sender.close()
    receiver.close()


@pytest.mark.parametrize("place", range(3))
def test_the_end_of_any_stage_ends_the_ring(wired: Wired, place: int) -> None:
    watched = threading.Thread(target=wired.ring.wait_closed)
    watched.start()
    wired.loops[place].stop()
    watched.join(1.0)
    assert not watched.is_alive()
    with pytest.raises(RingClosedError):
        wired.ring.round(_message(), 5.0)


class LateInbox(Listener):
    """Hand the upstream's connection over only after the loop was told to stop."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.connected = threading.Event()
        self.told = threading.Event()

    def accept(self, timeout_s: float) -> Channel:
        """Return the edge well after `close`."""
        channel = super().accept(timeout_s)
        self.told.clear()
        self.connected.set()
        self.told.wait(timeout_s)
        time.sleep(0.2)
        return channel

    def close(self) -> None:
        """Stop listening, and let `accept` return."""
        super().close()
        self.told.set()


def test_a_stop_while_the_upstream_connects_ends_the_loop() -> None:
    names = [address(secrets.token_hex(4), 1, "x") for _ in range(2)]
    inbox, onward = LateInbox(names[0]), Listener(names[1])
    events = EdgeEvents(()), EdgeEvents(())
    loop = StageLoop(Echo("drafter"), inbox, connect(names[1], 1.0), *events, 1, CORE, print)
    loop.start()
    upstream = connect(names[0], 1.0)
    assert inbox.connected.wait(10.0)
    loop.stop()
    with pytest.raises(RingClosedError):
        upstream.receive(1.0)
    onward.close()


def test_a_late_answer_is_a_hung_stage(wired: Wired) -> None:
    wired.stages["verifier"].wait_s = 0.4
    start = time.monotonic()
    with pytest.raises(StageHungError, match=r"0\.1 s"):
        wired.ring.round(_message(), 0.1)
    assert time.monotonic() - start < 0.3


def test_a_defect_ends_the_stage_and_with_it_the_ring(wired: Wired) -> None:
    wired.stages["committer"].breaks = True
    with pytest.raises(RingClosedError):
        wired.ring.round(_message(), 5.0)
    assert isinstance(wired.defects[0], ZeroDivisionError)


def test_nobody_listens_where_no_stage_is() -> None:
    with pytest.raises(RingClosedError):
        connect(address(secrets.token_hex(4), 1, "x"), 0.5)
    with pytest.raises(RingClosedError):
        Listener(address(secrets.token_hex(4), 1, "y")).accept(0.05)


def _pair() -> tuple[socket.socket, int, bytes]:
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, listener.getsockname()[1], secrets.token_bytes(frames.SECRET_BYTES)


def test_frames_pass_after_the_secret_and_only_then() -> None:
    listener, port, secret = _pair()
    found: list[frames.FrameChannel] = []
    taker = threading.Thread(target=lambda: found.append(frames.answer(listener, secret)))
    taker.start()
    stranger = frames.call("127.0.0.1", port, bytes(frames.SECRET_BYTES))
    with pytest.raises(UnavailableError):
        stranger.receive(2.0)
    friend = frames.call("127.0.0.1", port, secret)
    taker.join(2.0)
    friend.send(b"x" * STAGE_MESSAGE_BYTES)
    assert len(found[0].receive(2.0)) == STAGE_MESSAGE_BYTES
    with pytest.raises(TooLargeError):
        friend.send(b"x" * (STAGE_MESSAGE_BYTES + 1))
    friend.close()
    with pytest.raises(RingClosedError):
        found[0].receive(2.0)
    listener.close()


def test_a_frame_that_claims_too_much_ends_the_stream() -> None:
    listener, port, secret = _pair()
    found: list[frames.FrameChannel] = []
    taker = threading.Thread(target=lambda: found.append(frames.answer(listener, secret)))
    taker.start()
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(secret + (STAGE_MESSAGE_BYTES + 1).to_bytes(4, "big"))
        taker.join(2.0)
        with pytest.raises(RingClosedError):
            found[0].receive(2.0)
    listener.close()


def test_all_stages_of_a_ring_stay_on_one_core_of_those_they_may_use() -> None:
    cores = {3, 5, 8}
    rings = {secrets.token_hex(8) for _ in range(64)}
    chosen = {ring: {core_of(address(ring, 7, stage), cores) for stage in RING} for ring in rings}
    assert all(len(found) == 1 for found in chosen.values())
    assert set.union(*chosen.values()) == cores


def test_a_loop_stays_on_its_core() -> None:
    seen: list[set[int]] = []
    wired = Wired()
    step = wired.stages["verifier"].step

    def watched(message: StageMessage) -> StageMessage:
        seen.append(os.sched_getaffinity(0))
        return step(message)

    vars(wired.stages["verifier"])["step"] = watched
    try:
        wired.ring.round(StageMessage(epoch=1, sequence_number=1).SerializeToString(), 5.0)
    finally:
        wired.close()
    assert seen == [{CORE}]
