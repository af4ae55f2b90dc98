"""Hostile and odd callers: each costs its own call only, and gets the code of its own fault."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.client import Client
from services.contract import pb
from services.contract.limits import MAX_ENTRIES, PUBLIC_MESSAGE_BYTES
from services.gateway.caller_json import MAX_DEPTH
from tests.service.front import RunningServer, refusal, running
from tests.service.small import CONTEXT, VOCAB, small_engine

gen = pb.generation_pb2
GENERATE = "/lumotree.v1.GenerationService/Generate"
USER = {"role": gen.ROLE_USER, "content": "x"}


@pytest.fixture
def client(small_server: RunningServer) -> Iterator[Client]:
    with Client(small_server.target) as connected:
        yield connected
    assert small_server.seconds_to_free() < 5
    small_server.engine.scheduler.check_integrity()


def _refused(call: Any, *arguments: Any, **options: Any) -> tuple[str, str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    return refusal(caught.value)


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\xff", b"\x0b", b"\x0a\x01\xff"])
def test_bytes_that_are_no_request_are_invalid(small_server: RunningServer, data: bytes) -> None:
    """Never INTERNAL, which gRPC's own reader would answer."""
    with grpc.insecure_channel(small_server.target) as channel:
        for method in (GENERATE, "/grpc.health.v1.Health/Check"):
            call = channel.unary_unary(method)
            assert _refused(call, data, timeout=5)[:2] == ("INVALID_ARGUMENT", "MALFORMED")
        call = channel.unary_unary(GENERATE)
        assert _refused(call, b"\xf8\x01\x01", timeout=5)[1] == "UNKNOWN_FIELD"
        assert _refused(call, b"", timeout=5)[1] == "NO_PROMPT"


def _rss() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def _peak_growth(call: Any) -> int:
    """Return by how much memory grew at most while `call` ran."""
    before, peak, done = _rss(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, _rss())

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return max(peak, _rss()) - before


def _many_empty_messages(count: int) -> bytes:
    """Return a request with a chat of `count` messages that take two bytes each."""
    chat, size = b"\x0a\x00" * count, bytearray()
    left = len(chat)
    while left > 127:
        size.append(left & 127 | 128)
        left >>= 7
    number = gen.GenerateRequest.DESCRIPTOR.fields_by_name["chat"].number
    return bytes([number << 3 | 2, *size, left]) + chat


def test_a_message_of_millions_of_entries_is_refused_before_it_is_read(
    small_server: RunningServer,
) -> None:
    """16 MiB of two-byte messages would take 900 MiB and ten seconds of everyone's time."""
    data = _many_empty_messages(PUBLIC_MESSAGE_BYTES // 2 - 100)
    with grpc.insecure_channel(small_server.target) as channel:
        call = channel.unary_unary(GENERATE)
        call(gen.GenerateRequest(text={"text": "x"}, stop={"max_tokens": 0}).SerializeToString())
        begun, said = time.monotonic(), []
        growth = _peak_growth(lambda: said.append(_refused(call, data, timeout=20)))
        assert time.monotonic() - begun < 2
    assert said[0][:2] == ("INVALID_ARGUMENT", "TOO_MANY_ENTRIES")
    assert growth < 150 << 20


def test_entries_are_counted_at_all_depths_and_one_below_the_bound_is_read(
    small_server: RunningServer,
) -> None:
    """The control: the same bytes with as many entries as are allowed reach the next check."""
    with grpc.insecure_channel(small_server.target) as channel:
        call = channel.unary_unary(GENERATE)
        for count, reason in ((MAX_ENTRIES - 1, "OUT_OF_RANGE"), (MAX_ENTRIES, "TOO_MANY_ENTRIES")):
            found = _refused(call, _many_empty_messages(count), timeout=20)[:2]
            assert found == ("INVALID_ARGUMENT", reason) or reason != found[1] == "TOO_MANY"


@pytest.mark.parametrize(
    "value", ["[" * 100_000, "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "1" * 5000, "{", ""]
)
def test_json_of_callers_is_bounded(client: Client, value: str) -> None:
    tool = {"name": "f", "parameters_json": value}
    call = {"id": "1", "name": "f", "arguments_json": value}
    asked = gen.ChatPrompt(
        messages=[USER, {"role": gen.ROLE_ASSISTANT, "tool_calls": [call]}, USER],
        chat_template_kwargs={"extra": value},
    )
    codes = {"INVALID_ARGUMENT", "UNIMPLEMENTED"}  # the small checkpoint has no template
    assert _refused(client.stub.RenderChat, gen.RenderChatRequest(chat=asked))[0] in codes
    if value:
        field = "chat.tools[0].parameters_json"
        request = gen.RenderChatRequest(chat={"messages": [USER], "tools": [tool]})
        found = _refused(client.stub.RenderChat, request)
        assert found == ("INVALID_ARGUMENT", "JSON", field)


CONTRADICTIONS = [
    ({"greedy": True, "temperature": 0.5}, "sampling.greedy"),
    ({"banned_token_ids": list(range(VOCAB))}, "banned_token_ids"),
    ({"banned_token_ids": list(range(VOCAB - 1)), "min_tokens": 1}, "banned_token_ids"),
    ({"logprobs": -1}, "output.logprobs"),
    ({"stream_interval": -1}, "output.stream_interval"),
    ({"stream_interval": 1 << 20}, "output.stream_interval"),
    ({"min_tokens": 9, "max_tokens": 4}, "min_tokens"),
]


@pytest.mark.parametrize(("options", "field"), CONTRADICTIONS)
def test_what_contradicts_itself_is_refused_by_name(
    client: Client, options: dict[str, Any], field: str
) -> None:
    found = _refused(client.generate, "odd", **{"max_tokens": 4, **options})
    assert (found[0], found[2]) == ("INVALID_ARGUMENT", field)


def test_what_nearly_contradicts_itself_is_answered(client: Client) -> None:
    """The control: one id is left, and it is drawn."""
    answer = client.generate("odd", max_tokens=3, banned_token_ids=list(range(1, VOCAB)))
    assert answer.token_ids == (0, 0, 0)
    assert client.generate("odd", max_tokens=1, greedy=True, temperature=0.0).token_ids


def test_abort_and_watch_refuse_what_the_contract_refuses(client: Client) -> None:
    stub, watch = client.stub, gen.WatchSpecTraceRequest
    both = gen.AbortRequest(request_ids=["a"], all=True)
    assert _refused(stub.Abort, both) == ("INVALID_ARGUMENT", "ALL_AND_IDS", "all")
    for asked, field in (
        (watch(trace_level=gen.TRACE_LEVEL_NONE), "trace_level"),
        (watch(trace_level=gen.TRACE_LEVEL_SUMMARY), "trace_level"),
        (watch(max_steps=-1), "max_steps"),
    ):
        found = _refused(lambda asked=asked: next(stub.WatchSpecTrace(asked, timeout=5)))
        assert found[::2] == ("INVALID_ARGUMENT", field)


def test_a_watch_without_a_bound_goes_on_and_shows_steps_without_trees(client: Client) -> None:
    watch = client.stub.WatchSpecTrace(gen.WatchSpecTraceRequest(max_steps=0), timeout=10)
    time.sleep(0.1)
    client.generate("watched", max_tokens=24, ignore_eos=True, request_id="seen")
    first, second = next(watch), next(watch)
    assert (first.request_id, first.step.cycle, second.step.cycle) == ("seen", 0, 1)
    assert not first.step.HasField("tree")
    watch.cancel()


def test_a_large_text_does_not_hold_others_up(small_server: RunningServer, client: Client) -> None:
    """4 MiB of text take a second to tokenise; meanwhile every other call is answered."""
    text, waits, done = "ab" * (2 << 20), [], threading.Event()

    def ask() -> None:
        with Client(small_server.target) as other:
            while not done.wait(0.01):
                begun = time.monotonic()
                other.stub.GetLoad(gen.GetLoadRequest())
                waits.append(time.monotonic() - begun)

    asking = threading.Thread(target=ask)
    asking.start()
    begun = time.monotonic()
    assert client.stub.Tokenize(gen.TokenizeRequest(text=text)).count == len(text)
    took = time.monotonic() - begun
    done.set()
    asking.join()
    assert took > 0.2, "the control: it is long enough to show"
    assert len(waits) > 5 and sorted(waits)[len(waits) // 2] < 0.05


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenised(client: Client) -> None:
    begun = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        client.generate("x" * (6 << 20), max_tokens=1)
    assert time.monotonic() - begun < 1
    assert refusal(caught.value) == ("INVALID_ARGUMENT", "CONTEXT_LENGTH", "text.text")
    assert str(CONTEXT) in caught.value.details() and str(6 << 20) in caught.value.details()


def test_a_storm_of_cancels_leaves_nothing(small_server: RunningServer, client: Client) -> None:
    request = gen.GenerateStreamRequest(text={"text": "storm"})
    request.stop.max_tokens, request.stop.ignore_eos = 900, True
    for index in range(200):
        call = client.stub.GenerateStream(request)
        if index % 3 == 0:
            next(call)
        call.cancel()
    assert small_server.seconds_to_free() < 2
    assert client.generate("after", max_tokens=4, ignore_eos=True).token_ids


def test_aborts_of_everything_beside_requests_end_each_once(client: Client) -> None:
    reasons: list[str] = []

    def generate() -> None:
        for _ in range(10):
            answer = client.generate("beside", max_tokens=40, ignore_eos=True)
            reasons.append(answer.finish_reason)

    workers = [threading.Thread(target=generate) for _ in range(3)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        client.stub.Abort(gen.AbortRequest(all=True))
    assert len(reasons) == 30 and set(reasons) <= {"aborted", "length"}
    assert "aborted" in reasons


@pytest.mark.parametrize("seconds", [0, 1e-9, -1])
def test_a_deadline_that_has_passed_starts_nothing(
    small_server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    sent: list[str] = []
    real = small_server.engine.group.send
    monkeypatch.setattr(
        small_server.engine.group,
        "send",
        lambda message: (sent.append(message.WhichOneof("body")), real(message))[1],
    )
    with pytest.raises(grpc.RpcError) as caught:
        client.generate("late", max_tokens=1, timeout=seconds)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert small_server.seconds_to_free() < 1
    assert not sent


def _corrupted(real: Any, change: Any) -> Any:
    """Return a `send` that changes the first cycle's message or result."""
    hit = False

    def send(message: Any) -> Any:
        nonlocal hit
        is_first = message.WhichOneof("body") == "cycle" and not hit
        hit = hit or is_first
        if is_first:
            change(message)
        reply = real(message)
        if is_first:
            change(reply)
        return reply

    return send


def _stale(message: Any) -> None:
    if message.WhichOneof("body") == "cycle":
        message.cycle.sequences[0].cycle += 5


def _wrong_path(message: Any) -> None:
    if message.WhichOneof("body") == "result":
        message.result.sequences[0].path.nodes[:] = [9, 9]


def _wrong_root(message: Any) -> None:
    if message.WhichOneof("body") == "cycle":
        message.cycle.sequences[0].root_id ^= 1


def _wrong_length(message: Any) -> None:
    if message.WhichOneof("body") == "cycle":
        message.cycle.sequences[0].committed_length += 1


@pytest.mark.parametrize("change", [_stale, _wrong_path, _wrong_root, _wrong_length])
def test_a_broken_contract_between_stages_is_internal_and_ends_one_request(
    small_server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    """Not the caller's INVALID_ARGUMENT or ABORTED; the stages hold nothing of it afterwards."""
    group = small_server.engine.group
    expected = client.generate("whole", max_tokens=20, ignore_eos=True, seed=1).token_ids
    with monkeypatch.context() as patch:
        patch.setattr(group, "send", _corrupted(group.send, change))
        assert _refused(client.generate, "broken", max_tokens=20)[0] == "INTERNAL"
    for _ in range(3):
        answer = client.generate("whole", max_tokens=20, ignore_eos=True, seed=1)
        assert answer.token_ids == expected


def test_a_request_that_no_page_count_can_hold_is_refused_at_once(byte_model: Path) -> None:
    engine = small_engine(byte_model, num_pages=4)
    with running(engine) as server, Client(server.target) as client:
        found = _refused(client.generate, "x", max_tokens=900, timeout=5)
        assert found == ("INVALID_ARGUMENT", "TOO_FEW_PAGES", "prompt")
        answer = client.generate("x", max_tokens=200, ignore_eos=True, timeout=20)
        assert len(answer.token_ids) == 200, "the control: four pages hold this one"


def test_usage_of_chunks_adds_up_and_summaries_can_be_left_out(client: Client) -> None:
    request = gen.GenerateStreamRequest(text={"text": "usage"})
    request.stop.max_tokens, request.stop.ignore_eos = 12, True
    request.output.include_usage_each_chunk = True
    request.speculation.trace_level = gen.TRACE_LEVEL_NONE
    messages = list(client.stub.GenerateStream(request))
    for message in messages:
        if message.HasField("delta"):
            usage = message.delta.usage
            assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert messages[-1].HasField("end") and not messages[-1].end.HasField("speculation")
    request.speculation.trace_level = gen.TRACE_LEVEL_SUMMARY
    assert list(client.stub.GenerateStream(request))[-1].end.HasField("speculation")
