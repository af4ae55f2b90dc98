"""R2, R3, R9: a full queue, deadlines, a reader that stops; each costs its own caller only."""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2

from services.client import Client
from services.contract import pb
from services.contract.limits import MAX_STREAMS_PER_CLIENT
from services.gateway import session as session_module
from services.gateway import status
from services.gateway.requests import Delta
from services.gateway.session import Session
from tests.service import loader
from tests.service.front import RunningServer, refusal, rich_status, running
from tests.service.small import small_engine
from tests.tidy.sources import ROOT

gen = pb.generation_pb2
LONG = {"max_tokens": 900, "ignore_eos": True, "temperature": 1.0, "seed": 1}


@pytest.fixture
def client(small_server: RunningServer) -> Iterator[Client]:
    with Client(small_server.target) as connected:
        yield connected
    assert small_server.seconds_to_free() < 5


@pytest.fixture
def queue_of(small_server: RunningServer, monkeypatch: pytest.MonkeyPatch):
    def limit(count: int) -> None:
        monkeypatch.setattr(small_server.engine.scheduler, "_max_queue", count)

    return limit


def _fill(client: Client, count: int) -> list:
    """Return live streams that have begun: two run, the rest wait."""
    request = gen.GenerateStreamRequest(text={"text": "busy"})
    request.stop.max_tokens, request.stop.ignore_eos = 900, True
    calls = [client.stub.GenerateStream(request) for _ in range(count)]
    for call in calls:
        assert next(call).HasField("start")
    return calls


def _until(condition, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.001)


def test_a_full_queue_refuses_at_once_and_hurts_nobody(
    small_server: RunningServer, client: Client, queue_of
) -> None:
    queue_of(4)
    calls = _fill(client, 2)
    _until(lambda: small_server.engine.scheduler.num_running == 2)
    calls += _fill(client, 4)
    rounds = [sorted(_seconds_to_refusal(client) for _ in range(100)) for _ in range(3)]
    for call in calls:
        call.cancel()
    assert min(row[98] for row in rounds) <= 0.02, "p99 of a refusal, the best of three rounds"


def _seconds_to_refusal(client: Client) -> float:
    begun = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        client.generate("one too many", max_tokens=1)
    seconds = time.monotonic() - begun
    assert refusal(caught.value)[:2] == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
    details = rich_status(caught.value).details
    assert any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in details)
    return seconds


def test_everyone_admitted_under_ten_times_the_load_is_answered(
    small_server: RunningServer, queue_of
) -> None:
    queue_of(6)

    def one(index: int) -> str:
        with Client(small_server.target) as client:
            try:
                answer = client.generate("load", max_tokens=24, ignore_eos=True, seed=index)
            except grpc.RpcError as error:
                return error.code().name
            return f"{len(answer.token_ids)} tokens"

    with ThreadPoolExecutor(40) as pool:
        outcomes = list(pool.map(one, range(80)))
    assert set(outcomes) <= {"24 tokens", "RESOURCE_EXHAUSTED"}
    assert outcomes.count("24 tokens") >= 8
    assert outcomes.count("RESOURCE_EXHAUSTED") > 0
    assert small_server.seconds_to_free() < 1
    small_server.engine.scheduler.check_integrity()


OVERLOAD_SECONDS = 60


def _offer(server: RunningServer, rate: float, seconds: float) -> list[dict]:
    """Load a server from another process; return what became of each call."""
    command = [sys.executable, "-m", "tests.service.loader", server.target]
    done = subprocess.run(
        [*command, str(rate), str(seconds)], cwd=ROOT, capture_output=True, check=True, text=True
    )
    return json.loads(done.stdout)


def _rss() -> int:
    status_text = Path("/proc/self/status").read_text()
    return int(status_text.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.soak
def test_a_minute_of_ten_times_the_load_costs_nobody_admitted(byte_model: Path) -> None:
    """Offered calls are refused or whole; the admitted ones' cycles take as long as unloaded."""
    with running(small_engine(byte_model, max_sequences=1)) as server:
        server.engine.scheduler._max_queue = 4
        alone = _offer(server, 0, 10)
        rate = 10 * len(alone) / 10
        _offer(server, rate, 10)
        before = _rss()
        loaded = _offer(server, rate, OVERLOAD_SECONDS)
        assert server.seconds_to_free() < 5
        growth = _rss() - before
    whole = [one for one in loaded if one["code"] == "OK"]
    refused = [one["seconds"] for one in loaded if one["code"] == "RESOURCE_EXHAUSTED"]
    assert len(whole) + len(refused) == len(loaded) and len(refused) > 5 * len(whole)
    assert {one["tokens"] for one in whole} == {loader.MAX_TOKENS}
    medians = [statistics.median(one["cycle_ms"] for one in part) for part in (alone, whole)]
    p99 = sorted(refused)[int(0.99 * len(refused))]
    print(f"cycle {medians} ms, {len(whole)} whole, {len(refused)} refused in {p99 * 1e3:.1f} ms")
    assert medians[1] <= 1.2 * medians[0]
    assert growth <= 8 << 20


def test_one_connection_has_a_bounded_number_of_streams(
    small_server: RunningServer, client: Client
) -> None:
    watch = gen.WatchSpecTraceRequest(request_id="nobody")
    calls = [client.stub.WatchSpecTrace(watch) for _ in range(MAX_STREAMS_PER_CLIENT)]
    time.sleep(0.2)
    with pytest.raises(grpc.RpcError) as caught:
        client.generate("one too many", max_tokens=1)
    assert refusal(caught.value)[:2] == ("RESOURCE_EXHAUSTED", "CLIENT_STREAMS")
    with Client(small_server.target) as other:  # gRPC shares connections of equal channels
        other.close()
    for call in calls:
        call.cancel()
    time.sleep(0.2)
    assert client.generate("one less", max_tokens=1).token_ids


def _seconds_late(client: Client, prompt: str, options: dict) -> float:
    """Return how long after its deadline a call ends."""
    limit, begun = 0.15, time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        for _ in range(200):  # a short answer may come in time: then the next one is late
            left = limit - (time.monotonic() - begun)
            client.generate(prompt, timeout=max(left, 0.001), **options)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return time.monotonic() - begun - limit


@pytest.mark.parametrize("where", ["queued", "prefilling", "decoding"])
def test_a_deadline_is_kept_and_frees_what_it_held(
    small_server: RunningServer, client: Client, where: str
) -> None:
    calls = _fill(client, 2) if where == "queued" else []
    prompt = "x" * 1000 if where == "prefilling" else "deadline"
    options = dict(LONG, max_tokens=900 if where != "prefilling" else 20)
    late, held = [], []
    for _ in range(3):
        late.append(_seconds_late(client, prompt, options))
        held.append(_seconds_until(lambda: _num_live(small_server) == len(calls)))
    for call in calls:
        call.cancel()
    assert min(late) <= 0.05 and min(held) <= 0.1, "the best of three"


def _num_live(server: RunningServer) -> int:
    return server.engine.scheduler.num_running + server.engine.scheduler.num_waiting


def _seconds_until(condition) -> float:
    begun = time.monotonic()
    _until(condition)
    return time.monotonic() - begun


def test_an_expired_request_never_reaches_a_stage(
    small_server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, group, admitted = _fill(client, 2), small_server.engine.group, []
    _until(lambda: small_server.engine.scheduler.num_running == 2)
    real = group.send

    def send(message):
        if message.WhichOneof("body") == "admit":
            admitted.append(message)
        return real(message)

    monkeypatch.setattr(group, "send", send, raising=False)
    with pytest.raises(grpc.RpcError):
        client.generate("late", max_tokens=1, timeout=0.05)
    for call in calls:
        call.cancel()
    assert small_server.seconds_to_free() < 1
    assert admitted == []
    assert client.generate("in time", max_tokens=1, timeout=5).token_ids
    assert len(admitted) == 1


def test_without_a_deadline_the_servers_own_ends_a_call(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.contract.limits.MAX_TIME_MS", 100)
    begun = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        for _ in range(200):
            client.generate("no deadline", **LONG)
    assert refusal(caught.value)[:2] == ("DEADLINE_EXCEEDED", "DEADLINE")
    assert "tokens" in caught.value.details()
    assert time.monotonic() - begun < 2.0


def test_a_reader_that_stops_is_cut_off_and_costs_little(
    small_server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "READER_IDLE_SECONDS", 0.4)
    request = gen.GenerateStreamRequest(text={"text": "slow"})
    request.stop.max_tokens, request.stop.ignore_eos = 900, True
    request.output.logprobs = 20
    request.speculation.trace_level = gen.TRACE_LEVEL_FULL_TREE
    narrow = (("grpc.http2.lookahead_bytes", 4096), ("grpc.http2.bdp_probe", 0))
    channel = grpc.insecure_channel(small_server.target, narrow)
    stub = pb.generation_pb2_grpc.GenerationServiceStub(channel)
    calls = [stub.GenerateStream(request) for _ in range(2)]
    others = client.generate("others", max_tokens=32, seed=1, ignore_eos=True)
    assert len(others.token_ids) == 32
    time.sleep(1.5)
    assert small_server.seconds_to_free() < 2
    assert _unread_events() == 0
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert refusal(caught.value)[:2] == ("RESOURCE_EXHAUSTED", "SLOW_READER")
    channel.close()


def test_a_reader_that_reads_is_not_cut_off(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same idle limit, a reader that is slow but reads."""
    monkeypatch.setattr(status, "READER_IDLE_SECONDS", 0.4)
    tokens = 0
    for part in client.stream("read", max_tokens=300, ignore_eos=True, seed=1):
        tokens += len(part.token_ids)
        time.sleep(0.005)
    assert tokens == 300


def test_pending_events_of_one_reader_stay_below_a_mebibyte(
    small_server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What MAX_PENDING counts, measured: bytes of the fullest queue that is allowed."""
    kept: list[Delta] = []
    real = Session._push

    def push(self, item):
        if isinstance(item.event, Delta):
            kept.append(item.event)
        real(self, item)

    monkeypatch.setattr(Session, "_push", push)
    client.generate("weigh", max_tokens=200, ignore_eos=True, logprobs=20, temperature=0.0)
    weight = sum(map(session_module._weight, kept))
    assert weight > 1000
    most = _deep_bytes(kept) / weight * session_module.MAX_PENDING
    print(f"a full queue holds {most / 2**20:.2f} MiB")
    assert most <= 2**20


def _deep_bytes(value: object) -> int:
    """Return the bytes of a value and all that it alone refers to."""
    seen, todo, total = set(), [value], 0
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, type | bool | None.__class__):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        todo.extend(x for x in gc.get_referents(item) if not isinstance(x, type))
    return total


def _unread_events() -> int:
    gc.collect()
    return sum(item._queue.qsize() for item in gc.get_objects() if type(item) is Session)
