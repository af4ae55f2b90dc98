"""A stage of the in-process ring breaks: callers, health, and the ring that is built again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.client import Client
from services.contract import pb
from services.gateway import clock
from services.runtime.local import MAX_REBUILDS
from tests.service.front import RunningServer, refusal, running
from tests.service.small import small_engine

gen = pb.generation_pb2
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
NAMES = ("drafter", "verifier", "committer")


@pytest.fixture
def server(byte_model: Path) -> Iterator[RunningServer]:
    with running(small_engine(byte_model)) as started:
        yield started


class Watch:
    """Collects what a health Watch says, with times."""

    def __init__(self, target: str, name: str = "") -> None:
        self.seen: list[tuple[float, int]] = []
        self._channel = grpc.insecure_channel(target)
        stub = health_pb2_grpc.HealthStub(self._channel)
        self._call = stub.Watch(health_pb2.HealthCheckRequest(service=name))
        threading.Thread(target=self._read, daemon=True).start()
        self.wait_for([SERVING])

    def wait_for(self, statuses: list[int], seconds: float = 30.0) -> None:
        """Wait until the statuses seen are these."""
        end = time.monotonic() + seconds
        while [status for _, status in self.seen] != statuses:
            assert time.monotonic() < end, self.seen
            time.sleep(0.005)

    def close(self) -> None:
        """End the watch."""
        self._call.cancel()
        self._channel.close()

    def _read(self) -> None:
        try:
            for reply in self._call:
                self.seen.append((time.monotonic(), reply.status))
        except grpc.RpcError:
            return


def _break(server: RunningServer, index: int, at_cycle: int) -> list[float]:
    """Let a stage raise in its n-th cycle; return a list that gets the moment."""
    stage, moments = server.engine.group.stages[index], []
    real, count = stage.step, 0

    def step(message):
        nonlocal count
        if message.WhichOneof("body") == "cycle":
            count += 1
            if count == at_cycle:
                moments.append(time.monotonic())
                raise ZeroDivisionError("planted secret")
        return real(message)

    stage.step = step
    return moments


@pytest.mark.parametrize("index", range(3))
def test_a_broken_stage_is_seen_told_and_built_again(server: RunningServer, index: int) -> None:
    watch, stage_watch = Watch(server.target), Watch(server.target, NAMES[index])
    with Client(server.target) as client:
        expected = client.generate("rebuild", max_tokens=48, seed=3, ignore_eos=True)
        moments, epoch = _break(server, index, at_cycle=3), server.engine.group.epoch
        got = 0
        with pytest.raises(grpc.RpcError) as caught:
            for part in client.stream("rebuild", max_tokens=48, seed=3, ignore_eos=True):
                got += len(part.token_ids)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert f"; {got} tokens were sent" in caught.value.details()
        assert "planted" not in caught.value.details()
        for watched in (watch, stage_watch):
            watched.wait_for([SERVING, NOT_SERVING, SERVING])
            assert watched.seen[1][0] - moments[0] < 1.0
        assert server.engine.group.epoch == epoch + 1
        again = client.generate("rebuild", max_tokens=48, seed=3, ignore_eos=True)
        assert again.token_ids == expected.token_ids
    server.engine.scheduler.check_integrity()
    watch.close()
    stage_watch.close()


def test_a_ring_that_keeps_breaking_stays_out_of_service(server: RunningServer) -> None:
    group = server.engine.group
    with Client(server.target) as client:
        for _ in range(MAX_REBUILDS + 1):
            for stage in group.stages[:1]:
                stage.step = _raise
            with pytest.raises(grpc.RpcError) as caught:
                client.generate("again", max_tokens=2)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            if group._repair is not None:
                group._repair.join()
        assert not all(group.health().values())
        with pytest.raises(grpc.RpcError) as caught:
            client.generate("again", max_tokens=2)
        assert refusal(caught.value)[:2] == ("UNAVAILABLE", "RESTARTING")


@pytest.mark.parametrize(("patience", "statuses"), [(0.3, [1, 2, 1]), (60.0, [1])])
def test_health_does_not_claim_to_serve_while_nothing_moves(
    server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    patience: float,
    statuses: list[int],
) -> None:
    """A stage hangs for a second; the control is the row whose patience is longer."""
    monkeypatch.setattr(clock, "STUCK_SECONDS", patience)
    stage, go = server.engine.group.stages[1], threading.Event()
    real = stage.step

    def step(message):
        if message.WhichOneof("body") == "cycle" and not go.is_set():
            go.wait(1.0)
            go.set()
        return real(message)

    monkeypatch.setattr(stage, "step", step)
    watch = Watch(server.target)
    with Client(server.target) as client:
        answer = client.generate("hang", max_tokens=4, ignore_eos=True)
    assert len(answer.token_ids) == 4, "what hung goes on"
    watch.wait_for(statuses)
    if len(statuses) > 1:
        assert watch.seen[1][0] < watch.seen[2][0]
    watch.close()


def test_a_defect_outside_the_stages_ends_its_requests_and_frees_their_slots(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_) -> None:
        raise ZeroDivisionError("planted secret")

    with Client(server.target) as client:
        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr(server.engine.scheduler, "_take", broken)
                with pytest.raises(grpc.RpcError) as caught:
                    client.generate("defect", max_tokens=4)
            assert caught.value.code() is grpc.StatusCode.INTERNAL
            assert "planted" not in caught.value.details()
        assert server.seconds_to_free() < 1
        assert client.generate("fine", max_tokens=4, ignore_eos=True).usage.completion_tokens == 4
    server.engine.scheduler.check_integrity()


def _raise(message) -> None:
    raise ZeroDivisionError("planted secret")
