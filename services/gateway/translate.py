"""Public generate requests to scheduler requests: every field works or is refused by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from services.contract import limits, pb
from services.contract.checks import at_most, text, whole
from services.contract.errors import (
    InvalidField,
    PreconditionError,
    UnsupportedError,
)
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.contract.wire import refuse_unknown, refuse_unsupported
from services.gateway.defaults import Defaults, resolve_drafting
from services.gateway.front import Traits
from services.gateway.names import check_served
from services.gateway.prompts import PromptReader, listed_ids, set_or
from services.gateway.uniform import check_uniform

gen = pb.generation_pb2
GenerateRequest = gen.GenerateRequest | gen.GenerateStreamRequest

_MODES = {
    gen.SPECULATION_MODE_AUTO: "tree",
    gen.SPECULATION_MODE_OFF: "off",
    gen.SPECULATION_MODE_CHAIN: "chain",
    gen.SPECULATION_MODE_TREE: "tree",
}
_REMEMBERED = re.compile(r"random|(oracle|adversarial:\d{1,2}):@[\w-]{1,64}")
_PLAIN_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A public request with everything resolved that it left unset."""

    prompt_ids: tuple[int, ...]
    prompt_text: str
    sampling: SamplingParams
    budget: Budget
    drafting: Drafting
    stop: tuple[str, ...]
    num_choices: int
    time_limit_ms: int
    warnings: tuple[str, ...] = ()
    tie_policy: gen.TiePolicy = gen.TIE_POLICY_KEEP_TIES


@dataclass(frozen=True, slots=True)
class Translator:
    """Resolve public requests against one served model.

    Args    has_mtp: whether the checkpoint can draft by itself. test_drafters: whether a
            request may name one, which then knows remembered texts only and opens no file.
    """

    model: str
    prompts: PromptReader
    defaults: Defaults
    vocab_size: int
    traits: Traits
    has_mtp: bool = True
    test_drafters: bool = False

    def check_model(self, name: str) -> None:
        """Refuse another model's name; an empty one means the served model."""
        check_served(name, self.model)

    def resolve(self, request: GenerateRequest, tenant: str) -> Resolved:
        """Return the resolved request.

        Raises  InvalidField, UnsupportedError or NotFoundError naming the field.
        """
        refuse_unknown(request)
        refuse_unsupported(request)
        self.traits.check(request)
        self.check_model(request.model)
        check_uniform(request)
        _refuse_cache(request)
        ids, shown = self.prompts.read(request)
        sampling = self._sampling(request)
        sampling.check_vocabulary(self.vocab_size)
        drafting = self._drafting(request, tenant)
        return Resolved(
            prompt_ids=tuple(ids),
            prompt_text=shown,
            sampling=sampling,
            budget=self._budget(request, len(ids)),
            drafting=drafting,
            warnings=self._fallbacks(drafting, request.speculation.strict),
            tie_policy=self.traits.tie_policy,
            stop=_stop_strings(request),
            num_choices=whole(
                set_or(request.sampling, "n", 1), 1, limits.MAX_CHOICES, "sampling.n"
            ),
            time_limit_ms=whole(
                set_or(request.stop, "time_limit_ms", 0),
                0,
                limits.MAX_TIME_MS,
                "stop.time_limit_ms",
            ),
        )

    def _sampling(self, request: GenerateRequest) -> SamplingParams:
        options, output = request.sampling, request.output
        given: dict[str, Any] = {
            name: getattr(options, name) for name in _PLAIN_SAMPLING if options.HasField(name)
        }
        if given.get("top_k") == -1:
            given["top_k"] = 0
        if options.greedy and given.setdefault("temperature", 0.0) != 0.0:
            message = f"greedy is temperature 0, not {options.temperature:g}; send one of both"
            raise InvalidField("GREEDY", message, "sampling.greedy")
        bias = sorted(options.logit_bias.items())
        listed_ids(
            [i for i, _ in bias], self.vocab_size, limits.MAX_BIAS_IDS, "sampling.logit_bias"
        )
        given["logit_bias"] = tuple(bias)
        for name in ("allowed_token_ids", "banned_token_ids"):
            given[name] = tuple(
                listed_ids(
                    getattr(options, name),
                    self.vocab_size,
                    limits.MAX_LISTED_IDS,
                    f"sampling.{name}",
                )
            )
        if output.HasField("logprobs"):
            given["num_logprobs"] = whole(
                output.logprobs, 0, limits.MAX_LOGPROBS, "output.logprobs"
            )
        whole(output.stream_interval, 0, limits.MAX_NEW_TOKENS, "output.stream_interval")
        given["processed_logprobs"] = output.logprobs_mode == gen.LOGPROBS_MODE_PROCESSED
        return self.defaults.resolve_sampling(given)

    def _budget(self, request: GenerateRequest, prompt_tokens: int) -> Budget:
        options = request.stop
        stop_ids = listed_ids(
            options.stop_token_ids, self.vocab_size, limits.MAX_STOP_IDS, "stop.stop_token_ids"
        )
        wanted = options.max_tokens if options.HasField("max_tokens") else None
        if wanted is not None:
            whole(wanted, 0, limits.MAX_NEW_TOKENS, "stop.max_tokens")
        return self.defaults.resolve_budget(
            prompt_tokens,
            max_tokens=wanted,
            min_tokens=whole(options.min_tokens, 0, limits.MAX_NEW_TOKENS, "stop.min_tokens"),
            ignore_eos=options.ignore_eos,
            stop_ids=tuple(stop_ids),
        )

    def _drafting(self, request: GenerateRequest, tenant: str) -> Drafting:
        salt = text(request.cache.cache_salt, limits.MAX_TENANT // 2, "cache.cache_salt")
        if self.traits.drafting is not None:
            return replace(self.traits.drafting, tenant=f"{tenant}/{salt}")
        options = request.speculation
        mode = _MODES.get(options.mode, "tree")
        shape = options.shape or None
        if not options.HasField("mode") and shape is not None:
            mode = "off" if shape == "root" else "chain" if shape.startswith("chain-") else "tree"
        chosen = resolve_drafting(
            mode, shape, options.drafter or "mtp", set_or(options, "suffix", True)
        )
        _check_drafter(chosen.drafter, self.test_drafters)
        return Drafting(chosen.shape, chosen.drafter, chosen.suffix, f"{tenant}/{salt}")

    def _fallbacks(self, drafting: Drafting, strict: bool) -> tuple[str, ...]:
        """Return what is drafted otherwise than asked; refuse it under `strict`."""
        if self.has_mtp or drafting.shape == "root" or drafting.drafter != "mtp":
            return ()
        message = f"{self.model} has no MTP tensors, so {drafting.shape} is not drafted by MTP"
        if strict:
            raise PreconditionError("NO_MTP", f"{message}; use mode off", "speculation.strict")
        return (message,)


def _check_drafter(name: str, test_drafters: bool) -> None:
    if name == "mtp":
        return
    if not test_drafters:
        message = "test drafters are off; leave it out, or serve with --test-drafters"
        raise InvalidField("DRAFTER", message, "speculation.drafter")
    if not _REMEMBERED.fullmatch(name):
        message = "a request names no file; use random, oracle:@NAME or adversarial:D:@NAME"
        raise InvalidField("DRAFTER", message, "speculation.drafter")


def _refuse_cache(request: GenerateRequest) -> None:
    for name in ("use_prefix_cache", "save_to_cache"):
        if getattr(request.cache, name):
            message = "not supported: there is no prefix cache; leave it out"
            raise UnsupportedError("NOT_BUILT", message, f"cache.{name}")


def _stop_strings(request: GenerateRequest) -> tuple[str, ...]:
    at_most(request.stop.stop, limits.MAX_STOP_STRINGS, "stop.stop")
    for index, stop in enumerate(request.stop.stop):
        if not text(stop, limits.MAX_STOP_BYTES, f"stop.stop[{index}]"):
            raise InvalidField("EMPTY_STOP", "empty; leave it out", f"stop.stop[{index}]")
    return tuple(request.stop.stop)
