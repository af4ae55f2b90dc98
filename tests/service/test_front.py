"""The public port: answers, refusals by name, limits, cancel, deadline, health, drain."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from services.client import Client
from services.contract import pb
from services.contract.limits import METADATA_BYTES, PUBLIC_MESSAGE_BYTES
from services.gateway.requests import GenerationRequest
from services.gateway.server import join_address
from tests.service.front import RunningServer, refusal, rich_status, running
from tests.service.small import small_engine

gen = pb.generation_pb2
PROMPT = "def fibonacci(n):\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running() as started:
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.target) as connected:
        yield connected


def _idle(server: RunningServer, seconds: float = 2.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.engine.scheduler.is_idle:
            return True
        time.sleep(0.002)
    return False


def test_stream_joined_equals_unary_and_every_shape(client: Client) -> None:
    whole = client.generate(PROMPT, max_tokens=40, seed=3, temperature=0.9)
    parts = list(client.stream(PROMPT, max_tokens=40, seed=3, temperature=0.9))
    assert "".join(part.text for part in parts) == whole.text
    assert sum((part.token_ids for part in parts), ()) == whole.token_ids
    assert whole.usage.completion_tokens == len(whole.token_ids) == 40
    for shape in ("root", "chain-5", "adaptive", "[-1,0,0,1,1,2]"):
        other = client.generate(PROMPT, max_tokens=40, seed=3, temperature=0.9, shape=shape)
        assert other.token_ids == whole.token_ids, shape
    assert client.generate(PROMPT, max_tokens=40, seed=4, temperature=0.9).text != whole.text


def test_stream_starts_at_once_and_ends_with_usage(client: Client) -> None:
    request = gen.GenerateStreamRequest(token_ids={"ids": list(range(300))})
    request.stop.max_tokens = 8
    messages = list(client.stub.GenerateStream(request))
    kinds = [message.WhichOneof("event") for message in messages]
    assert kinds[0] == "start" and kinds.count("progress") == 2 and kinds[-1] == "end"
    assert [message.seq for message in messages] == list(range(len(messages)))
    assert messages[-1].end.usage.completion_tokens == 8


@pytest.mark.parametrize("count", range(1, 12))
def test_token_budget_is_exact(client: Client, count: int) -> None:
    answer = client.generate(PROMPT, max_tokens=count, temperature=0.0, logprobs=2)
    assert len(answer.token_ids) == count
    assert answer.finish_reason == "length"
    assert len(answer.raw.choices[0].logprobs) == count


def test_zero_tokens_only_fill_the_caches(client: Client) -> None:
    answer = client.generate(PROMPT, max_tokens=0)
    assert (answer.text, answer.token_ids, answer.finish_reason) == ("", (), "length")


def test_stop_string_cuts_text_ids_and_usage_alike(client: Client) -> None:
    free = client.generate(PROMPT, max_tokens=48, temperature=0.0)
    for start in range(2, len(free.text) - 6, 7):
        stop = free.text[start : start + 4]
        cut = client.generate(PROMPT, max_tokens=48, temperature=0.0, stop=[stop], logprobs=0)
        assert cut.text == free.text[: free.text.index(stop)]
        assert cut.finish_reason == "stop"
        assert cut.token_ids == free.token_ids[: len(cut.token_ids)]
        assert cut.usage.completion_tokens == len(cut.token_ids)
        assert len(cut.raw.choices[0].logprobs) == len(cut.token_ids)


def test_banned_and_forced_ids_hold_on_every_row(client: Client) -> None:
    free = client.generate(PROMPT, max_tokens=24, temperature=0.0)
    banned = free.token_ids[5]
    other = client.generate(PROMPT, max_tokens=24, temperature=0.0, banned_token_ids=[banned])
    assert banned not in other.token_ids
    forced = client.generate(PROMPT, max_tokens=24, temperature=1.0, logit_bias={77: 100.0})
    assert set(forced.token_ids) == {77}
    greedy_by_min_p = client.generate(PROMPT, max_tokens=24, temperature=1.0, min_p=1.0, top_k=0)
    assert greedy_by_min_p.token_ids == free.token_ids


REFUSED = [
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": -1.0}, "temperature"),
    ({"top_p": 0.0}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"n": 99}, "sampling.n"),
    ({"stop_token_ids": [8192]}, "stop.stop_token_ids[0]"),
    ({"stop_token_ids": [-1]}, "stop.stop_token_ids[0]"),
    ({"logit_bias": {8192: 1.0}}, "sampling.logit_bias[0]"),
    ({"allowed_token_ids": [2**31 - 1]}, "sampling.allowed_token_ids[0]"),
    ({"allowed_token_ids": [8177], "min_tokens": 2, "max_tokens": 4}, "allowed_token_ids"),
    ({"max_tokens": -1}, "stop.max_tokens"),
    ({"max_tokens": 2000}, "prompt"),
    ({"logprobs": 21}, "output.logprobs"),
    ({"stop": [""]}, "stop.stop[0]"),
    ({"mode": 3, "shape": "hydra27"}, "shape"),
    ({"shape": "hydra28"}, "shape"),
    ({"request_id": "x" * 200}, "request_id"),
]


@pytest.mark.parametrize(("options", "field"), REFUSED)
def test_bad_values_are_refused_by_name(client: Client, options: dict, field: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(PROMPT, **options)
    assert refusal(caught.value)[0] == "INVALID_ARGUMENT"
    assert refusal(caught.value)[2] == field


@pytest.mark.parametrize("prompt", ["", [], [8192], [-1], [{"role": "user", "content": ""}] * 1100])
def test_bad_prompts_are_refused_and_the_server_lives(client: Client, prompt: object) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(prompt, max_tokens=4)  # the point is the wrong prompt
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert client.generate(PROMPT, max_tokens=1).token_ids


@pytest.mark.parametrize("content", ["", " ", "\n"])
def test_a_chat_turn_without_words_is_answered(client: Client, content: str) -> None:
    turn = [{"role": "user", "content": content}]
    assert len(client.generate(turn, max_tokens=2, ignore_eos=True).token_ids) == 2


def test_unknown_names_are_not_found(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(PROMPT, model="other", max_tokens=1)
    assert refusal(caught.value)[:2] == ("NOT_FOUND", "UNKNOWN_MODEL")
    reply = client.stub.Abort(gen.AbortRequest(request_ids=["nobody"]))
    assert [result.found for result in reply.results] == [False]


def test_live_id_is_refused_and_usable_after_its_end(client: Client, server: RunningServer) -> None:
    stream = client.stream(PROMPT, max_tokens=900, request_id="same", ignore_eos=True)
    next(stream)
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(PROMPT, max_tokens=1, request_id="same")
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    stream.close()
    assert _idle(server)
    assert client.generate(PROMPT, max_tokens=1, request_id="same").token_ids


def test_a_refused_duplicate_leaves_the_live_request_alone(client: Client) -> None:
    stream = client.stream(PROMPT, max_tokens=200, request_id="mine", ignore_eos=True)
    next(stream)
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(PROMPT, max_tokens=1, request_id="mine")
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert list(stream)[-1].finish_reason == "length"


def test_closing_a_stream_frees_its_slot(client: Client, server: RunningServer) -> None:
    stream = client.stream(PROMPT, max_tokens=900, ignore_eos=True)
    next(stream)
    begun = time.monotonic()
    stream.close()
    assert _idle(server)
    assert time.monotonic() - begun < 0.5
    server.engine.scheduler.check_integrity()


def test_deadline_ends_the_call_and_the_work(client: Client, server: RunningServer) -> None:
    begun = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(PROMPT, max_tokens=900, ignore_eos=True, timeout=0.3)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - begun < 1.0
    assert _idle(server)


def test_abort_ends_a_stream_as_aborted(client: Client, server: RunningServer) -> None:
    stream = client.stream(PROMPT, max_tokens=900, ignore_eos=True, request_id="doomed")
    next(stream)
    assert client.stub.Abort(gen.AbortRequest(request_ids=["doomed"])).results[0].found
    assert [part.finish_reason for part in stream][-1] == "aborted"
    assert _idle(server)


def test_full_queue_is_refused_with_retry_info(client: Client, server: RunningServer) -> None:
    scheduler = server.engine.scheduler
    limit, scheduler._max_queue = scheduler._max_queue, 0
    try:
        with pytest.raises(grpc.RpcError) as caught:
            client.generate(PROMPT, max_tokens=1)
    finally:
        scheduler._max_queue = limit
    assert refusal(caught.value)[:2] == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
    assert any(
        detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR)
        for detail in rich_status(caught.value).details
    )


def _code(call: Any, *arguments: Any, **options: Any) -> str:
    try:
        call(*arguments, **options)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def test_a_message_of_the_limit_is_read_and_one_byte_more_is_not(client: Client) -> None:
    """What is read is then refused for its field's own limit."""
    request = gen.TokenizeRequest(text="x" * (PUBLIC_MESSAGE_BYTES - 5))
    assert request.ByteSize() == PUBLIC_MESSAGE_BYTES
    assert _code(client.stub.Tokenize, request) == "INVALID_ARGUMENT"
    request.text += "x"
    assert _code(client.stub.Tokenize, request) == "RESOURCE_EXHAUSTED"


def test_metadata_up_to_the_limit_are_read_and_more_never(client: Client) -> None:
    """gRPC's own headers take up to 600 bytes of it; nothing in between depends on chance."""
    request = gen.TokenizeRequest(text="x")
    for size, code in ((METADATA_BYTES - 600, "OK"), (METADATA_BYTES, "RESOURCE_EXHAUSTED")):
        for _ in range(20):
            big = (("big", "x" * size),)
            assert _code(client.stub.Tokenize, request, metadata=big) == code


def test_tokenize_detokenize_and_render_agree(client: Client) -> None:
    stub = client.stub
    tokens = stub.Tokenize(gen.TokenizeRequest(text="def é(): 日", return_offsets=True))
    assert len(tokens.offsets) == tokens.count == len(tokens.token_ids)
    back = stub.Detokenize(gen.DetokenizeRequest(token_ids=tokens.token_ids))
    assert back.text == "def é(): 日"
    chat = gen.ChatPrompt(messages=[gen.ChatMessage(role=gen.ROLE_USER, content="hi")])
    rendered = stub.RenderChat(gen.RenderChatRequest(chat=chat))
    again = stub.Tokenize(gen.TokenizeRequest(text=rendered.text))
    assert list(again.token_ids) == list(rendered.token_ids)


def test_choices_differ_and_are_seeded(client: Client) -> None:
    first = client.generate(PROMPT, max_tokens=24, n=2, seed=11, temperature=1.0).raw.choices
    again = client.generate(PROMPT, max_tokens=24, n=2, seed=11, temperature=1.0).raw.choices
    assert [c.token_ids for c in first] == [c.token_ids for c in again]
    assert first[0].token_ids != first[1].token_ids


def test_neighbours_do_not_change_an_answer(client: Client, server: RunningServer) -> None:
    alone = client.generate(PROMPT, max_tokens=40, seed=5, temperature=0.8)
    neighbour = client.stream("class A:\n", max_tokens=600, ignore_eos=True, temperature=1.3)
    next(neighbour)
    beside = client.generate(PROMPT, max_tokens=40, seed=5, temperature=0.8)
    neighbour.close()
    assert beside.token_ids == alone.token_ids
    assert _idle(server)


def test_trace_shows_the_steps_of_a_request(client: Client) -> None:
    watch = client.stub.WatchSpecTrace(
        gen.WatchSpecTraceRequest(
            request_id="seen", max_steps=3, trace_level=gen.TRACE_LEVEL_FULL_TREE
        )
    )
    time.sleep(0.1)
    answer = client.generate(PROMPT, max_tokens=48, request_id="seen", temperature=0.0)
    steps = list(watch)
    emitted = [token for step in steps for token in step.step.emitted_ids]
    assert tuple(emitted) == answer.token_ids[: len(emitted)]
    assert all(step.step.tree.active_count > 1 for step in steps)


def test_reflection_answers_under_both_names(server: RunningServer) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with grpc.insecure_channel(server.target) as channel:
        for version in ("v1", "v1alpha"):
            ask = channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )
            reply = next(ask(iter([request])))
            names = {service.name for service in reply.list_services_response.service}
            assert "lumotree.v1.GenerationService" in names, version


def test_health_names_every_stage(server: RunningServer) -> None:
    with grpc.insecure_channel(server.target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "lumotree.v1.GenerationService", "drafter", "verifier", "committer"):
            reply = stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_no_defect_reaches_a_caller_as_unknown(client: Client, server: RunningServer) -> None:
    scheduler = server.engine.scheduler
    real = scheduler.submit

    def broken(request: GenerationRequest) -> None:
        raise ZeroDivisionError("planted")

    scheduler.submit = broken
    try:
        with pytest.raises(grpc.RpcError) as caught:
            client.generate(PROMPT, max_tokens=1)
    finally:
        scheduler.submit = real
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "planted" not in caught.value.details()


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


HOSTS = [("localhost", "localhost"), *([("::1", "[::1]"), ("[::1]", "[::1]")] * _has_ipv6())]


@pytest.mark.parametrize(("host", "target"), HOSTS)
def test_every_form_of_a_host_is_bound(byte_model: Path, host: str, target: str) -> None:
    with (
        running(small_engine(byte_model), host=host) as server,
        Client(f"{target}:{server.server.port}") as client,
    ):
        assert client.generate("x", max_tokens=1, timeout=5, ignore_eos=True).token_ids


def test_an_address_of_ipv6_is_put_in_brackets_once() -> None:
    joined = [join_address(host, 5) for host in ("::1", "[::1]", "127.0.0.1", "a.example")]
    assert joined == ["[::1]:5", "[::1]:5", "127.0.0.1:5", "a.example:5"]


def test_drain_refuses_new_calls_and_lets_live_ones_end() -> None:
    with running() as server, Client(server.target) as client:
        stream = client.stream(PROMPT, max_tokens=60, ignore_eos=True)
        next(stream)
        clock = server.server._clock
        clock._draining = True
        with pytest.raises(grpc.RpcError) as caught:
            client.generate(PROMPT, max_tokens=1)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert [part.finish_reason for part in stream][-1] == "length"
        assert clock.drain(1.0)
