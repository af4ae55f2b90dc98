"""Fault kinds 4 and 12: ends inside an accepted run, inputs at and past every edge."""

from __future__ import annotations

import math
from collections.abc import Iterator

import grpc
import pytest

from services.client import Client, Completion
from services.contract import pb
from services.drafter.probes import remember_truth
from tests.service.front import RunningServer, refusal
from tests.service.small import CONTEXT, EOS, VOCAB

gen = pb.generation_pb2
LETTERS = {"allowed_token_ids": list(range(97, 123)), "temperature": 1.0, "seed": 4}
ORACLE = {"drafter": "oracle:@edge", "shape": "chain-15"}


@pytest.fixture(scope="module")
def client(small_server: RunningServer) -> Iterator[Client]:
    with Client(small_server.target) as connected:
        yield connected


@pytest.fixture(scope="module")
def free(client: Client) -> Completion:
    """An answer of 64 letters that the oracle knows from now on: runs of up to 16 tokens."""
    answer = client.generate("edge", max_tokens=64, **LETTERS)
    remember_truth("edge", answer.token_ids)
    again = client.generate("edge", max_tokens=64, **LETTERS, **ORACLE)
    assert again.token_ids == answer.token_ids
    assert again.raw.speculation.mean_acceptance_length > 8
    return answer


def test_a_stop_string_at_every_offset_cuts_there(client: Client, free: Completion) -> None:
    for start in range(48):
        stop = free.text[start : start + 3]
        end = free.text.index(stop)
        cut = client.generate("edge", max_tokens=64, stop=[stop], logprobs=0, **LETTERS, **ORACLE)
        assert (cut.text, cut.finish_reason) == (free.text[:end], "stop"), start
        assert len(cut.token_ids) == end + 3 == cut.usage.completion_tokens
        assert len(cut.raw.choices[0].logprobs) == len(cut.token_ids)
        assert cut.raw.choices[0].matched_stop.text == stop


@pytest.mark.parametrize("count", range(1, 41))
def test_every_budget_is_exact_inside_a_run(client: Client, free: Completion, count: int) -> None:
    answer = client.generate("edge", max_tokens=count, **LETTERS, **ORACLE)
    assert answer.token_ids == free.token_ids[:count]
    assert (answer.finish_reason, answer.usage.completion_tokens) == ("length", count)


def test_what_ends_first_in_a_run_wins(client: Client, free: Completion) -> None:
    text = free.text
    inside, past = text[1:3], text[4:7]
    assert text.index(inside) == 1 and text.index(past) == 4
    cut = client.generate("edge", max_tokens=5, stop=[inside], **LETTERS, **ORACLE)
    assert (cut.finish_reason, len(cut.token_ids)) == ("stop", 3)
    cut = client.generate("edge", max_tokens=5, stop=[past], **LETTERS, **ORACLE)
    assert (cut.finish_reason, cut.text) == ("length", text[:5])


def test_an_end_token_that_only_the_drafter_proposes_ends_nothing(client: Client) -> None:
    remember_truth("ends", [EOS] * 128)
    plain = client.generate("ends", max_tokens=96, mode=2, temperature=1.0, seed=6)
    for depth in (1, 3, 15):
        other = {"drafter": f"adversarial:{depth}:@ends", "shape": "chain-15"}
        answer = client.generate("ends", max_tokens=96, temperature=1.0, seed=6, **other)
        assert answer.token_ids == plain.token_ids
        assert answer.finish_reason == plain.finish_reason
    forced = client.generate("ends", max_tokens=9, logit_bias={EOS: 100.0})
    assert forced.finish_reason == "stop", "the control: the model's own end token ends"


@pytest.mark.parametrize("room", [1, 2, 3, 5, 7])
def test_a_prompt_up_to_the_context_ends_there_like_plain(client: Client, room: int) -> None:
    prompt = [65 + i % 50 for i in range(CONTEXT - room)]
    plain = client.generate(prompt, mode=2, temperature=0.0, ignore_eos=True)
    tree = client.generate(prompt, temperature=0.0, ignore_eos=True)
    assert tree.token_ids == plain.token_ids
    assert (tree.finish_reason, len(tree.token_ids)) == ("length", room)


def test_a_prompt_of_the_whole_context_is_refused_with_both_numbers(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.generate([65] * (CONTEXT + 1), max_tokens=1)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(CONTEXT) in caught.value.details() and str(CONTEXT + 1) in caught.value.details()


@pytest.mark.parametrize("mode", [1, 2], ids=["raw", "processed"])
def test_log_probabilities_are_finite(client: Client, mode: int) -> None:
    asked = {"logprobs": 20, "logprobs_mode": mode, "allowed_token_ids": [97, 98]}
    answer = client.generate("finite", max_tokens=12, top_k=1, seed=1, temperature=1.0, **asked)
    rows = answer.raw.choices[0].logprobs
    assert len(rows) == len(answer.token_ids)
    for row in rows:
        values = [row.chosen.logprob, *(one.logprob for one in row.top)]
        assert all(math.isfinite(value) and -9999.0 <= value <= 0.0 for value in values)


FIELDS = {
    "token_ids.ids[0]": lambda request, value: request.token_ids.ids.append(value),
    "stop.stop_token_ids[0]": lambda request, value: request.stop.stop_token_ids.append(value),
    "sampling.logit_bias[0]": lambda request, value: request.sampling.logit_bias.update({value: 1}),
    "sampling.allowed_token_ids[0]": lambda request, value: (
        request.sampling.allowed_token_ids.append(value)
    ),
    "sampling.banned_token_ids[0]": lambda request, value: request.sampling.banned_token_ids.append(
        value
    ),
}


@pytest.mark.parametrize("value", [-1, VOCAB, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("field", FIELDS)
def test_an_id_outside_the_vocabulary_is_refused_in_every_field(
    client: Client, field: str, value: int
) -> None:
    request = gen.GenerateRequest(text={"text": "ids"})
    FIELDS[field](request, value)
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Generate(request)
    assert refusal(caught.value) == ("INVALID_ARGUMENT", "TOKEN_OUT_OF_VOCABULARY", field)


def test_ids_are_refused_beside_a_stream_that_goes_on(client: Client) -> None:
    alone = client.generate("beside", max_tokens=64, **LETTERS)
    stream = client.stream("beside", max_tokens=64, **LETTERS)
    parts = [next(stream)]
    for value in (-1, VOCAB):
        for kind, method in (
            (gen.DetokenizeRequest(token_ids=[value]), client.stub.Detokenize),
            (gen.GenerateRequest(token_ids={"ids": [value]}), client.stub.Generate),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                method(kind)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    parts.extend(stream)
    assert sum((part.token_ids for part in parts), ()) == alone.token_ids


@pytest.mark.parametrize("prompt", ["", []])
def test_empty_inputs_get_a_typed_error(client: Client, prompt: object) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(prompt, max_tokens=2)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert client.generate("lives", max_tokens=1, ignore_eos=True).token_ids


@pytest.mark.parametrize("prompt", [" ", "\n\n", "\x00", [EOS], [0], "\ufeff"])
def test_odd_inputs_get_an_answer(client: Client, prompt: object) -> None:
    assert len(client.generate(prompt, max_tokens=3, ignore_eos=True).token_ids) == 3


COSTLY = [
    str([-1, *range(32)]),
    str([-1] + [0] * 32),
    "chain-16",
    "chain-99999999999999999999",
    "[" * 500,
    "[-1,5]",
    "[-1,0,1,1,-1]",
    "x" * 600,
]


@pytest.mark.parametrize("shape", COSTLY)
def test_a_tree_beyond_its_bounds_is_refused_before_work(
    small_server: RunningServer, client: Client, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S11: rows, depth and text of a shape are bounded; nothing reaches a stage."""
    sent: list[str] = []
    real = small_server.engine.group.send

    def send(message):
        sent.append(message.WhichOneof("body"))
        return real(message)

    monkeypatch.setattr(small_server.engine.group, "send", send)
    with pytest.raises(grpc.RpcError) as caught:
        client.generate("costly", max_tokens=2, shape=shape)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sent == []


def test_a_tree_at_its_bounds_is_taken(client: Client) -> None:
    """The control of the bounds above."""
    for shape in (str([-1, *range(15)]), str([-1] + [0] * 31), "chain-15"):
        assert client.generate("costly", max_tokens=2, shape=shape, ignore_eos=True).token_ids
