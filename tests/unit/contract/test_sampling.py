"""Sampling values, budgets, drafting: round trips and refusals by field name."""

import struct
from typing import Any

import pytest

from services.contract.errors import ContractError
from services.contract.sampling import (
    Budget,
    Drafting,
    SamplingParams,
    budget_from_proto,
    budget_to_proto,
    drafting_from_proto,
    drafting_to_proto,
    sampling_from_proto,
    sampling_to_proto,
)

FULL = SamplingParams(
    temperature=0.6,
    top_p=0.95,
    top_k=20,
    min_p=0.05,
    presence_penalty=1.0,
    frequency_penalty=-0.3,
    repetition_penalty=1.1,
    seed=(1 << 64) - 1,
    logit_bias=((3, 1.7), (9, -100.0)),
    allowed_token_ids=(1, 2, 3),
    banned_token_ids=(2,),
    num_logprobs=5,
    processed_logprobs=True,
)


@pytest.mark.parametrize("params", [SamplingParams(), FULL])
def test_sampling_survives_the_round_trip(params: SamplingParams) -> None:
    assert sampling_from_proto(sampling_to_proto(params)) == params


def test_sampling_holds_float32_values() -> None:
    assert FULL.temperature == struct.unpack("<f", struct.pack("<f", 0.6))[0]
    assert not FULL.is_greedy
    assert SamplingParams().is_greedy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_k", -1),
        ("top_k", 1.5),
        ("min_p", -0.01),
        ("min_p", 1.01),
        ("presence_penalty", 2.01),
        ("frequency_penalty", -2.01),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-39),
        ("repetition_penalty", 0.0078),
        ("seed", -1),
        ("seed", 1 << 64),
        ("num_logprobs", -2),
        ("processed_logprobs", 1),
        ("allowed_token_ids", (-1,)),
        ("banned_token_ids", (1 << 20,)),
    ],
)
def test_sampling_refuses_a_bad_value_by_name(field: str, value: Any) -> None:
    with pytest.raises(ContractError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field.startswith(field)


@pytest.mark.parametrize("bias", [((3, 100.5),), ((-1, 1.0),), ((3, float("nan")),)])
def test_sampling_refuses_a_bad_bias(bias: Any) -> None:
    with pytest.raises(ContractError) as caught:
        SamplingParams(logit_bias=bias)
    assert caught.value.field.startswith("logit_bias")


def test_sampling_refuses_two_biases_of_one_id_and_nothing_allowed() -> None:
    with pytest.raises(ContractError, match="two biases"):
        SamplingParams(logit_bias=((3, 1.0), (3, 2.0)))
    with pytest.raises(ContractError, match="at least one"):
        SamplingParams(allowed_token_ids=(1,), banned_token_ids=(1, 2))


def test_sampling_checks_ids_against_the_vocabulary() -> None:
    FULL.check_vocabulary(10)
    with pytest.raises(ContractError, match="logit_bias"):
        FULL.check_vocabulary(9)


def test_sampling_message_with_uneven_bias_or_a_gap_is_refused() -> None:
    message = sampling_to_proto(FULL)
    message.bias_ids.append(4)
    with pytest.raises(ContractError, match="3 ids and 2 values"):
        sampling_from_proto(message)
    message.ClearField("top_k")
    with pytest.raises(ContractError, match="top_k"):
        sampling_from_proto(message)


def test_budget_and_drafting_survive_the_round_trip() -> None:
    budget = Budget(40, 3, (1, 2), (9,), 4096)
    drafting = Drafting("chain-5", "oracle", False, "tenant")
    assert budget_from_proto(budget_to_proto(budget)) == budget
    assert drafting_from_proto(drafting_to_proto(drafting)) == drafting


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens"),
        ({"max_tokens": 4, "eos_ids": (-1,)}, "eos_ids[0]"),
        ({"max_tokens": 4, "stop_ids": (1 << 20,)}, "stop_ids[0]"),
        ({"max_tokens": 4, "context_length": 0}, "context_length"),
    ],
)
def test_budget_refuses_a_bad_value_by_name(values: dict[str, Any], field: str) -> None:
    with pytest.raises(ContractError) as caught:
        Budget(**values)
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["shape", "drafter"])
def test_drafting_refuses_an_empty_name(field: str) -> None:
    with pytest.raises(ContractError) as caught:
        Drafting(**{field: ""})
    assert caught.value.field == field
