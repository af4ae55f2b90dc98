"""Sampling values, budgets and drafting choices of one sequence, checked by field name."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from services.contract import limits
from services.contract.checks import at_most, flag, real, require, text, token_ids, whole
from services.contract.errors import InvalidField

if TYPE_CHECKING:
    from services.contract._pb import stage_pb2

_MAX_SEED: Final = (1 << 64) - 1
_SAMPLING_FIELDS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "num_logprobs",
    "processed_logprobs",
)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Hold resolved sampling values, named as vLLM names them; floats are float32 values.

    Args    temperature: 0 is greedy. top_p: 1 is off. top_k: 0 is off. min_p: 0 is off.
            seed: of the counter-based generator. logit_bias: (id, value) pairs, unique ids.
            allowed_token_ids: empty is off. num_logprobs: -1 none, else the top n of each row.
    Raises  InvalidField naming the field.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    banned_token_ids: tuple[int, ...] = ()
    num_logprobs: int = -1
    processed_logprobs: bool = False

    def __post_init__(self) -> None:
        for name, (low, high) in _REAL_BOUNDS.items():
            object.__setattr__(self, name, real(getattr(self, name), low, high, name))
        _check_open_bounds(self)
        whole(self.top_k, 0, limits.MAX_VOCAB, "top_k")
        whole(self.seed, 0, _MAX_SEED, "seed")
        whole(self.num_logprobs, -1, limits.MAX_LOGPROBS, "num_logprobs")
        flag(self.processed_logprobs, "processed_logprobs")
        object.__setattr__(self, "logit_bias", _checked_bias(self.logit_bias))
        for name in ("allowed_token_ids", "banned_token_ids"):
            object.__setattr__(self, name, _listed_ids(getattr(self, name), name))
        if self.allowed_token_ids and set(self.allowed_token_ids) <= set(self.banned_token_ids):
            message = "every allowed id is banned too; allow at least one"
            raise InvalidField("NOTHING_ALLOWED", message, "allowed_token_ids")

    @property
    def is_greedy(self) -> bool:
        """Return whether the most likely token is taken."""
        return self.temperature == 0.0

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse ids of `vocab_size` or more."""
        token_ids([i for i, _ in self.logit_bias], vocab_size, limits.MAX_BIAS_IDS, "logit_bias")
        for name in ("allowed_token_ids", "banned_token_ids"):
            token_ids(getattr(self, name), vocab_size, limits.MAX_LISTED_IDS, name)


_REAL_BOUNDS: Final = {
    "temperature": (0.0, limits.MAX_TEMPERATURE),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-limits.MAX_PENALTY, limits.MAX_PENALTY),
    "frequency_penalty": (-limits.MAX_PENALTY, limits.MAX_PENALTY),
    "repetition_penalty": (limits.MIN_REPETITION, limits.MAX_REPETITION),
}


def _check_open_bounds(params: SamplingParams) -> None:
    if params.top_p == 0.0:
        raise InvalidField("OUT_OF_RANGE", "0 is not allowed; 1 is off", "top_p")


def _checked_bias(pairs: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    pairs = tuple(pairs)
    at_most(pairs, limits.MAX_BIAS_IDS, "logit_bias")
    checked = tuple((_id(i, "logit_bias"), _bias(value, i)) for i, value in pairs)
    if len({i for i, _ in checked}) != len(checked):
        raise InvalidField("REPEATED_ID", "an id has two biases; send one an id", "logit_bias")
    return checked


def _bias(value: float, token: int) -> float:
    return real(value, -limits.MAX_BIAS, limits.MAX_BIAS, f"logit_bias[{token}]")


def _id(value: int, name: str) -> int:
    return whole(value, 0, limits.MAX_VOCAB - 1, name)


def _listed_ids(values: tuple[int, ...], name: str) -> tuple[int, ...]:
    return token_ids(values, limits.MAX_VOCAB, limits.MAX_LISTED_IDS, name)


@dataclass(frozen=True, slots=True)
class Budget:
    """Hold what ends a sequence on the device.

    Args    max_tokens: most tokens to emit; 0 only fills the caches. min_tokens: before it no
            end token is drawn. context_length: positions of the sequence, prompt included.
    """

    max_tokens: int
    min_tokens: int = 0
    eos_ids: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()
    context_length: int = limits.MAX_CONTEXT

    def __post_init__(self) -> None:
        whole(self.max_tokens, 0, limits.MAX_NEW_TOKENS, "max_tokens")
        whole(self.min_tokens, 0, self.max_tokens, "min_tokens")
        whole(self.context_length, 1, limits.MAX_CONTEXT, "context_length")
        for name, limit in (("eos_ids", limits.MAX_EOS_IDS), ("stop_ids", limits.MAX_STOP_IDS)):
            ids = token_ids(getattr(self, name), limits.MAX_VOCAB, limit, name)
            object.__setattr__(self, name, ids)


@dataclass(frozen=True, slots=True)
class Drafting:
    """Hold how a sequence is drafted; the drafter reads the shape and drafter names."""

    shape: str = "hydra27"
    drafter: str = "mtp"
    suffix: bool = True
    tenant: str = ""

    def __post_init__(self) -> None:
        text(self.shape, limits.MAX_SHAPE_CHARS, "shape")
        text(self.drafter, limits.MAX_DRAFTER_CHARS, "drafter")
        flag(self.suffix, "suffix")
        text(self.tenant, limits.MAX_TENANT, "tenant")
        for name in ("shape", "drafter"):
            if not getattr(self, name):
                raise InvalidField("EMPTY", "empty; name one", name)


def sampling_to_proto(params: SamplingParams) -> "stage_pb2.Sampling":
    """Return the stage message of `params`."""
    from services.contract._pb import stage_pb2

    return stage_pb2.Sampling(
        **{name: getattr(params, name) for name in _SAMPLING_FIELDS},
        bias_ids=[token for token, _ in params.logit_bias],
        bias_values=[value for _, value in params.logit_bias],
        allowed_ids=params.allowed_token_ids,
        banned_ids=params.banned_token_ids,
    )


def sampling_from_proto(message: "stage_pb2.Sampling") -> SamplingParams:
    """Return the checked values of a stage message."""
    require(message, _SAMPLING_FIELDS)
    if len(message.bias_ids) != len(message.bias_values):
        counts = f"{len(message.bias_ids)} ids and {len(message.bias_values)} values"
        raise InvalidField("BIAS_COLUMNS", f"{counts}; send one value an id", "bias_values")
    return SamplingParams(
        **{name: getattr(message, name) for name in _SAMPLING_FIELDS},
        logit_bias=tuple(zip(message.bias_ids, message.bias_values, strict=True)),
        allowed_token_ids=tuple(message.allowed_ids),
        banned_token_ids=tuple(message.banned_ids),
    )


def budget_to_proto(budget: Budget) -> "stage_pb2.Budget":
    """Return the stage message of `budget`."""
    from services.contract._pb import stage_pb2

    return stage_pb2.Budget(
        max_tokens=budget.max_tokens,
        min_tokens=budget.min_tokens,
        eos_ids=budget.eos_ids,
        stop_ids=budget.stop_ids,
        context_length=budget.context_length,
    )


def budget_from_proto(message: "stage_pb2.Budget") -> Budget:
    """Return the checked budget of a stage message."""
    require(message, ("max_tokens", "min_tokens", "context_length"))
    return Budget(
        message.max_tokens,
        message.min_tokens,
        tuple(message.eos_ids),
        tuple(message.stop_ids),
        message.context_length,
    )


def drafting_to_proto(drafting: Drafting) -> "stage_pb2.Drafting":
    """Return the stage message of `drafting`."""
    from services.contract._pb import stage_pb2

    return stage_pb2.Drafting(
        shape=drafting.shape,
        drafter=drafting.drafter,
        suffix=drafting.suffix,
        tenant=drafting.tenant,
    )


def drafting_from_proto(message: "stage_pb2.Drafting") -> Drafting:
    """Return the checked drafting of a stage message."""
    require(message, ("shape", "drafter", "suffix", "tenant"))
    return Drafting(message.shape, message.drafter, message.suffix, message.tenant)
