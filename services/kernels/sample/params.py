"""The words of `sampling` [S, 32] and the marks of `prompt_mask` [S, V]: pack, unpack, fill."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from services.contract.sampling import Budget, SamplingParams

# float64 fields, by index in the row viewed as float64.
SCALE: Final = 0
TOP_P: Final = 1
MARGIN: Final = 2
# float32 fields, by word.
PRESENCE: Final = 6
FREQUENCY: Final = 7
REPETITION: Final = 8
# int32 fields, by word.
TOP_K: Final = 9
SEED_LOW: Final = 10
SEED_HIGH: Final = 11
CHOICE: Final = 12
NUM_LOGPROBS: Final = 13
FLAGS: Final = 14
MIN_TOKENS: Final = 15
MAX_TOKENS: Final = 16
CONTEXT_LENGTH: Final = 17
NUM_EMITTED: Final = 18
# 1 / repetition penalty, float32: positive values are multiplied by it.
INVERSE_REPETITION: Final = 19
SAMPLING_WORDS: Final = 32

# Bits of FLAGS.
IS_GREEDY: Final = 1
HAS_BIAS: Final = 2
HAS_PENALTIES: Final = 4
IS_PROCESSED: Final = 8

# Bits of a prompt_mask entry.
IN_PROMPT: Final = 1
IS_EOS: Final = 2
IS_STOP: Final = 4
IS_END: Final = IS_EOS | IS_STOP


@dataclass(frozen=True, slots=True)
class SamplingWords:
    """Hold the unpacked words of one slot.

    Args    scale: 1 / temperature; 0 is greedy.
            margin: how far below the row's maximum min-p lets a value be; inf is off.
            num_emitted: tokens emitted so far, the pending root included.
    """

    scale: float
    top_p: float
    margin: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    inverse_repetition: float
    top_k: int
    seed: int
    choice_index: int
    num_logprobs: int
    flags: int
    min_tokens: int
    max_tokens: int
    context_length: int
    num_emitted: int


def pack(
    params: SamplingParams, budget: Budget, choice_index: int, out: npt.NDArray[np.int32]
) -> None:
    """Write one slot's words to `out` [32]; nothing is emitted yet.

    Numbers min_p = 1 is greedy: only the maximum survives, ties take the lowest id.
    """
    out[:] = 0
    doubles, singles = out.view(np.float64), out.view(np.float32)
    doubles[SCALE] = 0.0 if params.is_greedy else 1.0 / params.temperature
    doubles[TOP_P] = params.top_p
    doubles[MARGIN] = _margin(params)
    singles[PRESENCE] = params.presence_penalty
    singles[FREQUENCY] = params.frequency_penalty
    singles[REPETITION] = params.repetition_penalty
    singles[INVERSE_REPETITION] = 1.0 / params.repetition_penalty
    out[TOP_K] = params.top_k
    out[SEED_LOW : SEED_HIGH + 1] = np.array([params.seed], np.uint64).view(np.int32)
    out[CHOICE] = choice_index
    out[NUM_LOGPROBS] = params.num_logprobs
    out[FLAGS] = _flags(params)
    out[MIN_TOKENS] = budget.min_tokens
    out[MAX_TOKENS] = budget.max_tokens
    out[CONTEXT_LENGTH] = budget.context_length


def unpack(words: npt.NDArray[np.int32]) -> SamplingWords:
    """Return the values of one slot's words [32]."""
    doubles, singles = words.view(np.float64), words.view(np.float32)
    return SamplingWords(
        scale=float(doubles[SCALE]),
        top_p=float(doubles[TOP_P]),
        margin=float(doubles[MARGIN]),
        presence_penalty=float(singles[PRESENCE]),
        frequency_penalty=float(singles[FREQUENCY]),
        repetition_penalty=float(singles[REPETITION]),
        inverse_repetition=float(singles[INVERSE_REPETITION]),
        top_k=int(words[TOP_K]),
        seed=int(words[SEED_LOW : SEED_HIGH + 1].view(np.uint64)[0]),
        choice_index=int(words[CHOICE]),
        num_logprobs=int(words[NUM_LOGPROBS]),
        flags=int(words[FLAGS]),
        min_tokens=int(words[MIN_TOKENS]),
        max_tokens=int(words[MAX_TOKENS]),
        context_length=int(words[CONTEXT_LENGTH]),
        num_emitted=int(words[NUM_EMITTED]),
    )


def fill_bias(params: SamplingParams, out: npt.NDArray[np.float32]) -> None:
    """Write bias, bans and the allowed list of one slot to `out` [V]; a banned id has -inf."""
    out[:] = -np.inf if params.allowed_token_ids else 0.0
    out[list(params.allowed_token_ids)] = 0.0
    for token, value in params.logit_bias:
        out[token] += np.float32(value)
    out[list(params.banned_token_ids)] = -np.inf


def fill_marks(budget: Budget, out: npt.NDArray[np.uint8]) -> None:
    """Write the end tokens of one slot to `out` [V]; no prompt token is marked yet."""
    out[:] = 0
    out[list(budget.eos_ids)] |= IS_EOS
    out[list(budget.stop_ids)] |= IS_STOP


def _margin(params: SamplingParams) -> float:
    if params.min_p == 0.0:
        return math.inf
    return -params.temperature * math.log(params.min_p)


def _flags(params: SamplingParams) -> int:
    edits = params.logit_bias or params.allowed_token_ids or params.banned_token_ids
    penalties = (params.presence_penalty, params.frequency_penalty)
    flags = IS_GREEDY if params.is_greedy or params.min_p == 1.0 else 0
    flags |= HAS_BIAS if edits else 0
    flags |= HAS_PENALTIES if any(penalties) or params.repetition_penalty != 1.0 else 0
    return flags | (IS_PROCESSED if params.processed_logprobs else 0)
