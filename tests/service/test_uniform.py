"""S8: a uniform stream's deltas have one size and one cadence; the answer is the same."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.client import Client
from services.contract import pb
from services.gateway import uniform as module
from services.gateway.servicer import GenerationServicer
from services.gateway.uniform import UniformBuffer
from tests.service.front import RunningServer, refusal, running
from tests.service.small import small_engine

gen = pb.generation_pb2


@pytest.fixture
def client(small_server: RunningServer) -> Iterator[Client]:
    with Client(small_server.target) as connected:
        yield connected
    assert small_server.seconds_to_free() < 5


def _stream(client: Client, is_uniform: bool, **stop: Any) -> list[tuple[float, Any]]:
    """Return the messages of a stream that drafts well, each with its moment."""
    request = gen.GenerateStreamRequest(text={"text": "uniform"})
    request.sampling.allowed_token_ids.extend(range(97, 123))
    request.sampling.temperature, request.sampling.seed = 1.0, 4
    request.stop.CopyFrom(gen.StopOptions(ignore_eos=True, **{"max_tokens": 130, **stop}))
    request.output.uniform_stream = is_uniform
    return [(time.monotonic(), one) for one in client.stub.GenerateStream(request)]


def _deltas(messages: list[tuple[float, Any]]) -> list[Any]:
    return [message for _, message in messages if message.HasField("delta")]


def test_every_delta_has_one_size_and_the_same_tokens(client: Client) -> None:
    plain, even = _stream(client, False), _stream(client, True)
    deltas = _deltas(even)
    assert len({message.ByteSize() for message in deltas}) == 1
    counts = [message.delta.num_tokens for message in deltas if message.delta.num_tokens]
    assert set(counts[:-1]) == {module.TOKENS} and counts[-1] == 130 % module.TOKENS
    for field in ("token_ids", "text"):
        joined = [
            [part for m in _deltas(messages) for part in getattr(m.delta, field)]
            for messages in (plain, even)
        ]
        assert joined[0] == joined[1], field
    assert [message.seq for _, message in even] == list(range(len(even)))
    ends = [message.WhichOneof("event") for _, message in even[-2:]]
    assert ends == ["finish", "end"] and even[-1][1].end.usage.completion_tokens == 130


def test_deltas_come_at_one_cadence(client: Client) -> None:
    moments = [at for at, message in _stream(client, True) if message.HasField("delta")]
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    period = module.PERIOD_SECONDS
    assert 0.95 * period < sum(gaps) / len(gaps) < 1.2 * period
    middle = sorted(gaps)[len(gaps) // 4 : -len(gaps) // 4]
    assert all(abs(gap - period) < 0.3 * period for gap in middle)


def test_a_plain_stream_shows_its_drafts(client: Client) -> None:
    """The control: sizes and counts of ordinary deltas differ."""
    deltas = _deltas(_stream(client, False))
    assert len({message.ByteSize() for message in deltas}) > 1
    assert len({message.delta.num_tokens for message in deltas[:-1]}) > 1


def test_a_stop_string_and_a_cancel_end_a_uniform_stream(
    small_server: RunningServer, client: Client
) -> None:
    whole = "".join(m.delta.text for m in _deltas(_stream(client, False)))
    even = _stream(client, True, stop=[whole[40:43]])
    assert "".join(m.delta.text for m in _deltas(even)) == whole[: whole.index(whole[40:43])]
    parts = client.stream("cancel", max_tokens=900, ignore_eos=True, uniform_stream=True)
    next(parts)
    parts.close()
    assert small_server.seconds_to_free() < 1


@pytest.mark.parametrize(("waits", "reason"), [(True, "length"), (False, "cut")])
def test_a_drain_waits_for_what_is_computed_and_not_sent(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch, waits: bool, reason: str
) -> None:
    """The engine is idle long before a paced stream ends; the control waits for it alone."""
    if not waits:
        monkeypatch.setattr(GenerationServicer, "num_live", 0)
    with running(small_engine(byte_model)) as server, Client(server.target) as client:
        parts = client.stream("drain", max_tokens=250, ignore_eos=True, uniform_stream=True)
        got = list(next(parts).token_ids)
        stopped = asyncio.run_coroutine_threadsafe(server.server.stop(30.0), server.loop)
        ended = "cut"
        try:
            for part in parts:
                got.extend(part.token_ids)
                ended = part.finish_reason or ended
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        stopped.result(40)
    assert (ended, len(got) == 250) == (reason, reason == "length")


REFUSED = [
    ({"n": 2}, "sampling.n"),
    ({"echo": True}, "output.echo"),
    ({"logprobs": 0}, "output.logprobs"),
    ({"include_usage_each_chunk": True}, "output.include_usage_each_chunk"),
    ({"stream_interval": 65}, "output.stream_interval"),
    ({"digests": True}, "speculation.digests"),
    ({"trace_level": gen.TRACE_LEVEL_STEPS}, "speculation.trace_level"),
]


@pytest.mark.parametrize(("options", "field"), REFUSED)
def test_what_has_no_fixed_size_is_refused_beside_it(
    client: Client, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(client.stream("x", max_tokens=4, uniform_stream=True, **options))
    assert refusal(caught.value) == ("INVALID_ARGUMENT", "UNIFORM_STREAM", field)


def test_a_unary_answer_is_refused_by_name(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.generate("x", max_tokens=1, uniform_stream=True)
    assert refusal(caught.value) == ("UNIMPLEMENTED", "UNARY", "output.uniform_stream")
    assert client.generate("x", max_tokens=1, uniform_stream=False, ignore_eos=True).token_ids


def test_any_text_and_number_fills_up_to_the_same_size(seed: int) -> None:
    rng = random.Random(seed)
    for tokens in (1, 4, 64):
        buffer, sizes, sent = UniformBuffer("request-é", tokens), set(), ""
        texts = ["".join(rng.choices("aé日😀", k=rng.randrange(90))) for _ in range(200)]
        for index, text in enumerate(texts):
            ids = [rng.randrange(1 << rng.randrange(1, 20)) for _ in range(rng.randrange(9))]
            buffer.add(gen.Delta(text=text, token_ids=ids, num_tokens=len(ids)))
            message = buffer.next(seq=1 << index % 40, is_last=False)
            sizes.add(message.ByteSize())
            sent += message.delta.text
        while not buffer.is_empty:
            message = buffer.next(seq=7, is_last=True)
            sizes.add(message.ByteSize())
            sent += message.delta.text
        assert len(sizes) == 1, (tokens, sizes)
        assert sent == "".join(texts)
