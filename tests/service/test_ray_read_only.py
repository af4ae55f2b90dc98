"""Stages whose importers cannot write: found by the probe, served by order, the same bits."""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.contract import pb
from services.contract.errors import ContractError
from services.gateway.engine import Engine, Generation
from services.runtime.ipc.host import SharedFile
from services.runtime.log import ROOT
from services.runtime.placement import StageActors
from services.runtime.ray_group import RayGroup
from tests.service.front import RunningServer, generate_digested, make_engine

pytestmark = pytest.mark.slow
PROMPT = "def fibonacci(n):\n"
TOKENS = 400
F_SEAL_FUTURE_WRITE = 0x10  # linux/fcntl.h; Python's fcntl has no name for it


@pytest.fixture(scope="module")
def sealing() -> Iterator[pytest.MonkeyPatch]:
    """From its owner's mapping on, nobody else can map the verifier's memory for writing."""
    files: list[int] = []
    make, call = SharedFile.__init__, StageActors.call

    def remember(self: SharedFile, label: str, size_bytes: int) -> None:
        make(self, label, size_bytes)
        if label == "verifier":
            files.append(self._descriptor)

    def seal_after_load(self: StageActors, method: str, *rest: Any, **limit: float) -> Any:
        answers = call(self, method, *rest, **limit)
        if method == "load":
            fcntl.fcntl(files[-1], fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)
        return answers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedFile, "__init__", remember)
        patch.setattr(StageActors, "call", seal_after_load)
        yield patch


@pytest.fixture(scope="module")
def records() -> Iterator[list[logging.LogRecord]]:
    """What the service logs."""
    found: list[logging.LogRecord] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    handler = Keeping()
    logger = logging.getLogger(f"{ROOT}.runtime.ray_group")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture(scope="module")
def engine(
    ray_session: None, sealing: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> Iterator[Engine]:
    opened = make_engine(runtime="ray")
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="module")
def expected() -> Generation:
    local = make_engine()
    try:
        return generate_digested(local, PROMPT, TOKENS)
    finally:
        local.close()


def _digests(generation: Generation) -> list[bytes]:
    return [delta.digest for delta in generation.deltas]


def test_ordered_publications_give_the_digests_of_one_process(
    engine: Engine, expected: Generation
) -> None:
    found = generate_digested(engine, PROMPT, TOKENS)
    assert engine.group.stats()["mode"] == "cpu_shm_ro"
    assert found.finished.token_ids == expected.finished.token_ids
    assert _digests(found) == _digests(expected)
    assert len(_digests(found)) >= 50 and all(_digests(found))


def test_another_seed_gives_other_digests(engine: Engine, expected: Generation) -> None:
    assert _digests(generate_digested(engine, PROMPT, TOKENS, seed=8)) != _digests(expected)


def test_the_mode_is_named_in_logs_health_and_server_info(
    engine: Engine, records: list[logging.LogRecord]
) -> None:
    fields = {record.getMessage(): getattr(record, "fields", {}) for record in records}
    assert "committer to verifier" in fields["importers cannot write"]["why"]
    assert fields["stages wired"]["mode"] == "cpu_shm_ro"
    server = RunningServer(engine)
    try:
        with grpc.insecure_channel(server.target) as channel:
            stub = pb.generation_pb2_grpc.GenerationServiceStub(channel)
            info = stub.GetServerInfo(pb.generation_pb2.GetServerInfoRequest())
            health = health_pb2_grpc.HealthStub(channel)
            name = health_pb2.HealthCheckRequest(service="transport.cpu_shm_ro")
            assert health.Check(name).status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
                health.Check(health_pb2.HealthCheckRequest(service="transport.cpu_shm"))
    finally:
        server.stop()
    assert (info.runtime, info.transport) == ("ray", "cpu_shm_ro")


def test_a_killed_committer_comes_back_in_the_same_mode(
    engine: Engine, expected: Generation
) -> None:
    group = engine.group
    assert isinstance(group, RayGroup)
    epoch = group.epoch
    group.arm("committer", "committer.next_root=kill@3")
    with pytest.raises(ContractError):
        generate_digested(engine, PROMPT, TOKENS)
    end = time.monotonic() + 30
    while not all(group.health().values()):
        assert time.monotonic() < end, "the group does not come back"
        time.sleep(0.02)
    assert (group.mode, group.epoch > epoch) == ("cpu_shm_ro", True)
    # The trees are others: the drafter knows this text by now.
    again = generate_digested(engine, PROMPT, TOKENS)
    assert again.finished.token_ids == expected.finished.token_ids
    assert again.deltas[-1].digest == expected.deltas[-1].digest
