"""Log-probabilities at the row that emitted a token."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.contract.checks import at_most, require, whole
from services.contract.errors import InvalidField
from services.contract.limits import MAX_LOGPROBS, MAX_PATH, MIN_LOGPROB

if TYPE_CHECKING:
    from services.contract._pb import path_pb2


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Hold one token's natural log-probability; below -9999 it is -9999."""

    token_id: int
    logprob: float

    def __post_init__(self) -> None:
        if math.isnan(self.logprob) or self.logprob > 1e-3:
            message = f"{self.logprob} is not a log-probability"
            raise InvalidField("LOGPROB", message, "logprob")
        object.__setattr__(self, "logprob", min(max(self.logprob, MIN_LOGPROB), 0.0))


@dataclass(frozen=True, slots=True)
class EmittedLogprobs:
    """Hold the log-probability of an emitted token and of the row's best tokens."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()


def logprobs_to_proto(values: Iterable[EmittedLogprobs]) -> "list[path_pb2.EmittedLogprobs]":
    """Return one message an emitted token."""
    from services.contract._pb import path_pb2

    def one(value: TokenLogprob) -> path_pb2.TokenLogprob:
        return path_pb2.TokenLogprob(token_id=value.token_id, logprob=value.logprob)

    return [
        path_pb2.EmittedLogprobs(chosen=one(value.chosen), top=[one(x) for x in value.top])
        for value in values
    ]


def logprobs_from_proto(
    messages: "Iterable[path_pb2.EmittedLogprobs]", vocab_size: int
) -> tuple[EmittedLogprobs, ...]:
    """Return the checked values of an AcceptedPath's `logprobs`."""
    listed = tuple(messages)
    at_most(listed, MAX_PATH, "logprobs")
    return tuple(_emitted(message, vocab_size) for message in listed)


def _emitted(message: "path_pb2.EmittedLogprobs", vocab_size: int) -> EmittedLogprobs:
    require(message, ("chosen",), "logprobs.")
    at_most(message.top, MAX_LOGPROBS, "logprobs.top")
    top = tuple(_token(entry, vocab_size) for entry in message.top)
    return EmittedLogprobs(_token(message.chosen, vocab_size), top)


def _token(message: "path_pb2.TokenLogprob", vocab_size: int) -> TokenLogprob:
    require(message, ("token_id", "logprob"), "logprobs.")
    whole(message.token_id, 0, vocab_size - 1, "logprobs.token_id")
    return TokenLogprob(message.token_id, message.logprob)
