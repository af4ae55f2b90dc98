"""Bytes within limits; unknown and unbuilt fields are refused by name."""

import random
from typing import Any

import pytest

from services.contract import pb
from services.contract.errors import (
    ContractError,
    InternalError,
    StaleEpochError,
    TooLargeError,
    UnsupportedError,
)
from services.contract.failure import error_from_failure, failure_from_error
from services.contract.limits import PUBLIC_MESSAGE_BYTES, STAGE_MESSAGE_BYTES
from services.contract.wire import parse, refuse_unknown, refuse_unsupported
from tests.fuzz.mutate import mutate_bytes

GENERATION = pb.generation_pb2
KINDS = (GENERATION.GenerateRequest, GENERATION.GenerateStreamRequest)


def full_request(kind: Any = GENERATION.GenerateRequest) -> Any:
    chat = GENERATION.ChatPrompt(
        messages=[GENERATION.ChatMessage(role="ROLE_USER", content="hello")],
        tools=[GENERATION.Tool(name="tool", parameters_json="{}")],
        chat_template_kwargs={"enable_thinking": "false"},
    )
    return kind(
        request_id="request",
        metadata={"key": "value"},
        chat=chat,
        sampling=GENERATION.SamplingOptions(temperature=0.0, seed=0, logit_bias={3: 1.5}),
        stop=GENERATION.StopOptions(max_tokens=0, stop=["\n"], stop_token_ids=[-1]),
        output=GENERATION.OutputOptions(logprobs=0, parse_tools=False),
        speculation=GENERATION.SpeculationOptions(mode="SPECULATION_MODE_TREE", strict=True),
    )


def test_zero_is_told_from_unset() -> None:
    request = full_request()
    assert request.sampling.HasField("temperature") and request.sampling.HasField("seed")
    assert request.stop.HasField("max_tokens") and not request.stop.HasField("min_tokens")


@pytest.mark.parametrize("kind", KINDS)
def test_request_survives_the_round_trip_and_every_refusal(kind: Any) -> None:
    request = full_request(kind)
    parsed = parse(kind, request.SerializeToString(), PUBLIC_MESSAGE_BYTES)
    assert parsed == request
    refuse_unknown(parsed)
    refuse_unsupported(parsed)


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("", "priority", 0),
        ("constraint", "regex", "a"),
        ("constraint", "json_object", True),
        ("sampling", "tie_policy", GENERATION.TIE_POLICY_EXACTLY_K),
        ("stop", "max_reasoning_tokens", 0),
        ("output", "prompt_logprobs", 0),
        ("output", "parse_tools", True),
        ("output", "parse_reasoning", True),
        ("chat", "tool_choice", GENERATION.TOOL_CHOICE_REQUIRED),
    ],
)
def test_what_is_not_built_is_refused_by_name(part: str, field: str, value: Any) -> None:
    request = full_request()
    setattr(getattr(request, part) if part else request, field, value)
    with pytest.raises(UnsupportedError) as caught:
        refuse_unsupported(request)
    assert caught.value.field == (part if part == "constraint" else f"{part}.{field}".strip("."))


def test_bad_words_are_refused_by_name() -> None:
    request = full_request()
    request.sampling.bad_words.append("word")
    with pytest.raises(UnsupportedError, match=r"sampling\.bad_words"):
        refuse_unsupported(request)


def test_unknown_fields_are_refused_at_any_depth() -> None:
    unknown = b"\xf8\x07\x01"
    request = full_request()
    request.chat.messages[0].MergeFromString(unknown)
    with pytest.raises(ContractError) as caught:
        refuse_unknown(request)
    assert (caught.value.reason, caught.value.field) == ("UNKNOWN_FIELD", "chat.messages[0]")


@pytest.mark.parametrize(
    ("part", "field"), [("speculation", "mode"), ("output", "logprobs_mode"), ("chat", "role")]
)
def test_unknown_enum_numbers_are_refused(part: str, field: str) -> None:
    request = full_request()
    target = request.chat.messages[0] if part == "chat" else getattr(request, part)
    setattr(target, field, 77)
    with pytest.raises(ContractError) as caught:
        refuse_unknown(request)
    assert caught.value.reason == "UNKNOWN_ENUM"
    assert caught.value.field.endswith(field)


def test_both_requests_have_the_same_fields() -> None:
    first, second = (
        [(f.name, f.number, f.type, f.is_repeated) for f in kind.DESCRIPTOR.fields]
        for kind in KINDS
    )
    assert first == second


@pytest.mark.parametrize("limit", [STAGE_MESSAGE_BYTES, PUBLIC_MESSAGE_BYTES])
def test_message_at_its_limit_is_read_and_one_byte_more_is_not(limit: int) -> None:
    kind = GENERATION.DetokenizeResponse
    header = kind(text="x" * (limit - 16)).ByteSize() - (limit - 16)
    data = kind(text="x" * (limit - header)).SerializeToString()
    assert len(data) == limit
    assert len(parse(kind, data, limit).text) == limit - header
    with pytest.raises(TooLargeError, match=f"{limit + 1} bytes; limit {limit}"):
        parse(kind, data + b"\0", limit)


def test_mutated_requests_give_only_the_contract_error(seed: int) -> None:
    rng = random.Random(seed)
    data = full_request().SerializeToString()
    outcomes = [_outcome(mutate_bytes(rng, data)) for _ in range(20_000)]
    assert {"READ", "MALFORMED", "UNKNOWN_FIELD"} <= set(outcomes)


def _outcome(data: bytes) -> str:
    try:
        request = parse(GENERATION.GenerateRequest, data, PUBLIC_MESSAGE_BYTES)
        refuse_unknown(request)
        refuse_unsupported(request)
    except ContractError as error:
        return error.reason
    return "READ"


def test_a_refusal_keeps_its_class_and_words_on_the_ring() -> None:
    failure = failure_from_error("verifier", StaleEpochError("STALE_EPOCH", "epoch 1", "epoch"))
    error = error_from_failure(failure)
    assert type(error) is StaleEpochError
    assert str(error) == "verifier: epoch: epoch 1"
    failure.reason = "SomethingElse"
    assert type(error_from_failure(failure)) is InternalError
