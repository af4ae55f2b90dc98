"""R7: mutated stage messages give only the contract's error, whatever part is read."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from services.contract import pb
from services.contract.errors import ContractError
from services.contract.limits import STAGE_MESSAGE_BYTES
from services.contract.path import (
    AcceptedPath,
    CutReason,
    EmittedLogprobs,
    TokenLogprob,
    logprobs_from_proto,
    path_from_proto,
    path_to_proto,
)
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
from services.contract.wire import parse, refuse_unknown
from tests.fuzz.mutate import mutate_bytes
from tests.trees import random_tag

STAGE = pb.stage_pb2


def admit() -> Any:
    params = SamplingParams(
        temperature=0.6, logit_bias=((3, 1.0),), allowed_token_ids=(1, 2), num_logprobs=5
    )
    body = STAGE.Admit(
        request_id="request",
        slot=1,
        sampling=sampling_to_proto(params),
        budget=budget_to_proto(Budget(40, 2, (1, 2), (3,), 4096)),
        drafting=drafting_to_proto(Drafting(tenant="tenant")),
    )
    return STAGE.StageMessage(epoch=7, sequence_number=3, admit=body)


def result() -> Any:
    path = AcceptedPath((0, 1, 3), (6, 8, 9), 9, 103, CutReason.EOS, 2)
    logprobs = [EmittedLogprobs(TokenLogprob(6, -0.5), (TokenLogprob(6, -0.5),))]
    message = path_to_proto(path, random_tag(random.Random(1)), b"digest", logprobs)
    body = STAGE.Result(sequences=[STAGE.SequenceResult(path=message)])
    return STAGE.StageMessage(epoch=7, sequence_number=3, result=body)


def read_admit(message: Any) -> None:
    sampling_from_proto(message.admit.sampling)
    budget_from_proto(message.admit.budget)
    drafting_from_proto(message.admit.drafting)


def read_result(message: Any) -> None:
    for sequence in message.result.sequences:
        path_from_proto(sequence.path, 4096, 7)
        logprobs_from_proto(sequence.path.logprobs, 4096)


@pytest.mark.parametrize(
    ("make", "read", "reasons"),
    [
        (admit, read_admit, {"READ", "MALFORMED", "MISSING", "OUT_OF_RANGE", "BIAS_COLUMNS"}),
        (result, read_result, {"READ", "MALFORMED", "MISSING", "PATH_COUNTS", "CUT_REASON"}),
    ],
    ids=["admit", "result"],
)
def test_mutated_stage_messages_give_only_the_contract_error(
    seed: int, make: Callable[[], Any], read: Callable[[Any], None], reasons: set[str]
) -> None:
    rng = random.Random(seed)
    data = make().SerializeToString()
    outcomes = Counter(_outcome(mutate_bytes(rng, data), read) for _ in range(20_000))
    assert set(outcomes) >= reasons, reasons - set(outcomes)


def _outcome(data: bytes, read: Callable[[Any], None]) -> str:
    try:
        message = parse(STAGE.StageMessage, data, STAGE_MESSAGE_BYTES)
        refuse_unknown(message)
        read(message)
    except ContractError as error:
        return error.reason
    return "READ"
