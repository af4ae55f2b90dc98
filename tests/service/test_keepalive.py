"""A long prefill breaks no connection: Start at once, progress while it runs, pings answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.contract import pb
from services.gateway import server as server_module
from tests.service.front import RunningServer, running
from tests.service.small import small_engine

gen = pb.generation_pb2
PREFILL_SECONDS = 5.0
EAGER = (
    ("grpc.keepalive_time_ms", 100),
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


@contextmanager
def _slow_prefill(server: RunningServer, seconds: float) -> Iterator[list[float]]:
    """Let every chunk of a prompt take so long at the verifier; yield when chunks ended."""
    stage, ended = server.engine.group.stages[1], list[float]()
    real = stage.step

    def step(message: Any) -> Any:
        is_chunk = message.WhichOneof("body") == "prefill"
        if is_chunk:
            time.sleep(seconds)
        reply = real(message)
        if is_chunk:
            ended.append(time.monotonic())
        return reply

    stage.step = step
    try:
        yield ended
    finally:
        stage.step = real


def _stream(target: str, num_tokens: int) -> list[tuple[float, Any]]:
    """Return a stream's messages with their moments; the client pings each second."""
    request = gen.GenerateStreamRequest(token_ids={"ids": [65] * num_tokens})
    request.stop.max_tokens, request.stop.ignore_eos = 4, True
    with grpc.insecure_channel(target, EAGER) as channel:
        stub = pb.generation_pb2_grpc.GenerationServiceStub(channel)
        return [(time.monotonic(), message) for message in stub.GenerateStream(request)]


@pytest.mark.slow
def test_a_client_that_pings_through_a_long_prefill_gets_its_answer(
    small_server: RunningServer,
) -> None:
    begun = time.monotonic()
    with _slow_prefill(small_server, PREFILL_SECONDS):
        messages = _stream(small_server.target, 100)
    first, _ = messages[0]
    assert messages[0][1].HasField("start") and first - begun < 0.5
    assert messages[-1][0] - begun > PREFILL_SECONDS
    assert messages[-1][1].HasField("end")


@pytest.mark.slow
def test_a_server_that_counts_pings_breaks_the_connection(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: with gRPC's own tolerance the same client loses its call."""
    patient = {"grpc.http2.max_ping_strikes", "grpc.http2.min_ping_interval_without_data_ms"}
    options = tuple(o for o in server_module._CHANNEL_OPTIONS if o[0] not in patient)
    monkeypatch.setattr(server_module, "_CHANNEL_OPTIONS", options)
    with (
        running(small_engine(byte_model)) as server,
        _slow_prefill(server, PREFILL_SECONDS),
        pytest.raises(grpc.RpcError) as caught,
    ):
        _stream(server.target, 100)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "ping" in caught.value.details()


def test_progress_is_told_chunk_by_chunk_while_the_prompt_is_read(
    small_server: RunningServer,
) -> None:
    with _slow_prefill(small_server, 0.2) as ended:
        messages = _stream(small_server.target, 1000)
    told = [(at, one.progress) for at, one in messages if one.HasField("progress")]
    assert [(p.done, p.total) for _, p in told] == [(n, 1000) for n in (256, 512, 768, 1000)]
    for (at, _), moment, after in zip(told, ended, [*ended[1:], ended[-1] + 1.0], strict=True):
        assert moment <= at < after, "told before the next chunk is done"


def test_a_queued_request_has_its_start_before_it_runs(small_server: RunningServer) -> None:
    """Who waits behind others is told so at once, and is pinged like everyone."""
    with _slow_prefill(small_server, 1.0):
        threads = [
            threading.Thread(target=_stream, args=(small_server.target, 200)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        begun = time.monotonic()
        messages = _stream(small_server.target, 10)
        for thread in threads:
            thread.join()
    assert messages[0][1].HasField("start") and messages[0][0] - begun < 0.5
    assert messages[-1][0] - begun > 0.5
