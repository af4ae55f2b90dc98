"""Stages as Ray actors: the same bits as in one process, and what happens when one dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.client import Client
from services.contract import pb
from services.contract.errors import ContractError
from services.gateway.engine import Engine, Generation
from services.runtime.failpoints import TEST_MODE
from services.runtime.ray_group import RayGroup, RayOptions
from tests.service.front import RunningServer, generate_digested, make_engine

PROMPT = "def fibonacci(n):\n"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, never written
LONG, SHORT = 400, 60
POINTS = {
    "drafter": ("receive@2", "receive@4", "send@3", "send@6", "send@9"),
    "verifier": ("receive@5", "forward@2", "forward@6", "walk@4", "send@5"),
    "committer": ("accept@3", "recurrent_replay@4", "conv_gather@5", "kv_scatter@4", "flip@5"),
}
QUICK = (("drafter", "send@6"), ("verifier", "walk@4"), ("committer", "kv_scatter@4"))
CASES = [(stage, point) for stage, points in POINTS.items() for point in points]


@pytest.fixture(scope="module")
def expected() -> Generation:
    engine = make_engine()
    try:
        return generate_digested(engine, PROMPT, LONG)
    finally:
        engine.close()


@pytest.fixture(scope="module")
def engine(ray_session: None) -> Iterator[Engine]:
    opened = make_engine(runtime="ray")
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[RunningServer]:
    started = RunningServer(engine)
    try:
        yield started
    finally:
        started.stop()


def _group(engine: Engine) -> RayGroup:
    assert isinstance(engine.group, RayGroup)
    return engine.group


def _wait_serving(group: RayGroup, seconds: float = 20.0) -> float:
    """Return how long it took: up to 5 s on an idle machine, but tests share theirs."""
    start = time.monotonic()
    while not all(group.health().values()):
        assert time.monotonic() - start < seconds, "the group does not come back"
        time.sleep(0.02)
    return time.monotonic() - start


@dataclass
class Death:
    """What a client saw of a stage's death; times in seconds since the last token."""

    tokens: list[int] = field(default_factory=list)
    error_s: float = 0.0
    code: str = ""
    text: str = ""


def _stream_into_death(server: RunningServer) -> Death:
    seen, last = Death(), time.monotonic()
    with Client(server.target) as client:
        try:
            for part in client.stream(PROMPT, max_tokens=300, seed=7, temperature=0.9):
                seen.tokens.extend(part.token_ids)
                last = time.monotonic()
        except grpc.RpcError as error:
            seen.code, seen.text = error.code().name, error.details()
    seen.error_s = time.monotonic() - last
    return seen


def _health(server: RunningServer, name: str) -> str:
    with grpc.insecure_channel(server.target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        status = stub.Check(health_pb2.HealthCheckRequest(service=name)).status
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


@contextmanager
def _not_serving_within(server: RunningServer, name: str, seconds: float) -> Iterator[None]:
    yield
    end = time.monotonic() + seconds
    while _health(server, name) != "NOT_SERVING":
        assert time.monotonic() < end, f"health of {name!r} lies"
        time.sleep(0.01)


def test_ids_and_digests_of_actors_equal_those_in_process(
    engine: Engine, expected: Generation
) -> None:
    found = generate_digested(engine, PROMPT, LONG)
    digests = [delta.digest for delta in found.deltas]
    assert found.finished.token_ids == expected.finished.token_ids
    assert digests == [delta.digest for delta in expected.deltas]
    assert len(digests) >= 50 and all(digests)


def test_another_seed_gives_other_digests(engine: Engine, expected: Generation) -> None:
    found = generate_digested(engine, PROMPT, LONG, seed=8)
    assert [d.digest for d in found.deltas] != [d.digest for d in expected.deltas]


def test_transport_is_named_and_no_file_stands_for_shared_memory(
    engine: Engine, server: RunningServer
) -> None:
    stats = engine.group.stats()
    assert stats["mode"] == "cpu_shm"
    assert set(stats["stages"]) == {"drafter", "verifier", "committer"}
    assert not list(SHARED_MEMORY.glob("*lumotree*"))
    with grpc.insecure_channel(server.target) as channel:
        stub = pb.generation_pb2_grpc.GenerationServiceStub(channel)
        info = stub.GetServerInfo(pb.generation_pb2.GetServerInfoRequest())
    assert (info.runtime, info.transport) == ("ray", "cpu_shm")
    assert info.fingerprint["torch"]


@pytest.mark.parametrize(("stage", "point"), QUICK)
def test_a_killed_stage_fails_its_callers_and_comes_back(
    server: RunningServer, expected: Generation, stage: str, point: str
) -> None:
    _kill_and_recover(server, expected, stage, point)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "point"), [case for case in CASES if case not in QUICK])
def test_a_stage_killed_at_any_point_loses_and_doubles_nothing(
    server: RunningServer, expected: Generation, stage: str, point: str
) -> None:
    _kill_and_recover(server, expected, stage, point)


def _kill_and_recover(server: RunningServer, expected: Generation, stage: str, point: str) -> None:
    group = _group(server.engine)
    _wait_serving(group)
    epoch, pids = group.epoch, group.stage_pids()
    name, _, visit = point.partition("@")
    group.arm(stage, f"{stage}.{name}=kill@{visit}")
    with _not_serving_within(server, stage, 1.0):
        seen = _stream_into_death(server)
    assert (seen.code, seen.error_s < 1.0) == ("UNAVAILABLE", True), seen
    assert f"{len(seen.tokens)} tokens" in seen.text
    took = _wait_serving(group)
    print(f"{stage} {point}: {len(seen.tokens)} tokens, served again after {took:.1f} s")
    assert group.epoch > epoch
    assert {n for n, pid in group.stage_pids().items() if pid != pids[n]} == {stage}
    _answers_as(expected, server)
    assert tuple(seen.tokens) == expected.finished.token_ids[: len(seen.tokens)]


def test_failpoints_are_refused_outside_test_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    from services.committer.actor import CommitterHost

    monkeypatch.delenv(TEST_MODE, raising=False)
    with pytest.raises(ContractError, match=TEST_MODE):
        CommitterHost().arm("committer.flip=kill")


@pytest.mark.slow
def test_a_stage_that_dies_idle_is_noticed_and_costs_no_later_request(
    server: RunningServer, expected: Generation
) -> None:
    group = _group(server.engine)
    _wait_serving(group)
    os.kill(group.stage_pids()["drafter"], 9)
    with _not_serving_within(server, "drafter", 1.0):
        pass
    assert _stream_into_death(server).code == "UNAVAILABLE"
    _wait_serving(group)
    _answers_as(expected, server)


def test_a_hung_stage_is_ended_at_the_deadline_of_a_round(
    server: RunningServer, expected: Generation, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = _group(server.engine)
    _wait_serving(group)
    pids = group.stage_pids()
    monkeypatch.setattr(group, "_options", RayOptions(round_s=1.0))
    group.arm("verifier", "verifier.walk=hang@3")
    seen = _stream_into_death(server)
    assert (seen.code, 0.9 < seen.error_s < 2.0) == ("UNAVAILABLE", True), seen
    monkeypatch.undo()
    _wait_serving(group)
    assert {n for n, pid in group.stage_pids().items() if pid != pids[n]} == {"verifier"}
    _answers_as(expected, server)


def _answers_as(expected: Generation, server: RunningServer) -> None:
    with Client(server.target) as client:
        whole = client.generate(PROMPT, max_tokens=SHORT, seed=7, temperature=0.9, ignore_eos=True)
    assert tuple(whole.token_ids) == expected.finished.token_ids[:SHORT]
