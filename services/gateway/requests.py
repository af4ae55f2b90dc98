"""What the scheduler is asked and what it answers."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from services.contract.errors import ContractError
from services.contract.path import EmittedLogprobs
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.contract.tree import Tree
from services.gateway.speculation import SpecSummary


class FinishReason(enum.Enum):
    """Why a sequence ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"
    TIME_LIMIT = "time_limit"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Started:
    """The sequence holds a slot; prefill begins."""

    queue_ms: float


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Prompt tokens processed so far."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Delta:
    """What one cycle added; token_ids, logprobs agree one to one."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[EmittedLogprobs, ...]
    cycle: int
    tree: Tree
    nodes: tuple[int, ...]
    committed_length: int
    digest: bytes | None


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one sequence in milliseconds."""

    queue_ms: float
    prefill_ms: float
    ttft_ms: float
    decode_ms: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a sequence; spans_ms: time of its cycles by stage, and of whole rounds."""

    reason: FinishReason
    matched_stop: str | int | None
    token_ids: tuple[int, ...]
    text: str
    prompt_tokens: int
    timing: Timing
    speculation: SpecSummary
    spans_ms: dict[str, float]
    error: ContractError | None = None


Event = Started | Prefilled | Delta | Finished
EventSink = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate.

    Args    prompt_ids: at least one token. sink: called from the scheduler's thread.
            stop: stop strings. time_limit_ms: 0 is none.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    budget: Budget
    drafting: Drafting
    sink: EventSink
    choice_index: int = 0
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True
    wants_digest: bool = False
    time_limit_ms: float = 0.0

    @property
    def key(self) -> tuple[str, int]:
        """Identity among live sequences."""
        return self.request_id, self.choice_index
