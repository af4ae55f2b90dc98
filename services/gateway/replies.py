"""Scheduler events and resolved requests as public messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from services.contract import pb
from services.contract.path import logprobs_to_proto
from services.contract.sampling import SamplingParams
from services.contract.tree import NodeSource, TreeTag, tree_to_proto
from services.gateway.requests import Delta, Finished, FinishReason, Timing
from services.gateway.speculation import SpecSummary, source_name
from services.gateway.translate import Resolved

gen = pb.generation_pb2

REASONS = {
    FinishReason.STOP: gen.FINISH_REASON_STOP,
    FinishReason.LENGTH: gen.FINISH_REASON_LENGTH,
    FinishReason.ABORTED: gen.FINISH_REASON_ABORTED,
    FinishReason.TIME_LIMIT: gen.FINISH_REASON_TIME_LIMIT,
    FinishReason.ERROR: gen.FINISH_REASON_ERROR,
}
_SOURCES = {source_name(source): source for source in NodeSource}


def sampling_options(
    params: SamplingParams,
    num_choices: int = 1,
    tie_policy: gen.TiePolicy = gen.TIE_POLICY_KEEP_TIES,
) -> gen.SamplingOptions:
    """Return effective sampling values in public form."""
    return gen.SamplingOptions(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=dict(params.logit_bias),
        allowed_token_ids=params.allowed_token_ids,
        banned_token_ids=params.banned_token_ids,
        seed=params.seed,
        n=num_choices,
        greedy=params.is_greedy,
        tie_policy=tie_policy,
    )


def effective(resolved: Resolved) -> gen.EffectiveParameters:
    """Return what a request runs with, defaults and seed included."""
    budget = resolved.budget
    return gen.EffectiveParameters(
        sampling=sampling_options(resolved.sampling, resolved.num_choices, resolved.tie_policy),
        stop=gen.StopOptions(
            max_tokens=budget.max_tokens,
            min_tokens=budget.min_tokens,
            stop=resolved.stop,
            stop_token_ids=budget.stop_ids,
            ignore_eos=not budget.eos_ids,
            time_limit_ms=resolved.time_limit_ms,
        ),
        shape=resolved.drafting.shape,
        drafter=resolved.drafting.drafter,
    )


def usage(finished: Iterable[Finished]) -> gen.Usage:
    """Return the token counts of a request's choices."""
    ended = list(finished)
    prompt = ended[0].prompt_tokens if ended else 0
    completion = sum(len(f.token_ids) for f in ended)
    accepted = sum(f.speculation.num_accepted_draft_tokens for f in ended)
    drafted = sum(f.speculation.num_draft_tokens for f in ended)
    return gen.Usage(
        prompt_tokens=prompt,
        cached_tokens=0,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        accepted_prediction_tokens=accepted,
        rejected_prediction_tokens=drafted - accepted,
    )


def timing(spans: Timing, num_tokens: int) -> gen.Timing:
    """Return the times of a sequence with its decode rate."""
    rate = max(num_tokens - 1, 0) / max(spans.decode_ms / 1e3, 1e-9)
    return gen.Timing(**asdict(spans), tokens_per_second=rate if num_tokens > 1 else 0.0)


def summary(spec: SpecSummary) -> gen.SpecSummary:
    """Return speculation figures in public form."""
    return gen.SpecSummary(
        num_spec_steps=spec.num_spec_steps,
        num_draft_tokens=spec.num_draft_tokens,
        num_accepted_draft_tokens=spec.num_accepted_draft_tokens,
        mean_acceptance_length=spec.mean_acceptance_length,
        draft_acceptance_rate=spec.draft_acceptance_rate,
        acceptance_histogram=spec.acceptance_histogram,
        accepted_by_depth=spec.accepted_by_depth,
        sources=[
            gen.SourceCount(
                source=f"NODE_SOURCE_{_SOURCES[name].name}",
                drafted=drafted,
                accepted=spec.accepted_by_source.get(name, 0),
            )
            for name, drafted in spec.drafted_by_source.items()
        ],
        fallback_steps=0,
    )


def matched_stop(finished: Finished, eos_ids: Iterable[int]) -> gen.MatchedStop | None:
    """Return what stopped a sequence, if anything did."""
    matched = finished.matched_stop
    if matched is None:
        return None
    if isinstance(matched, str):
        return gen.MatchedStop(text=matched)
    if matched in eos_ids:
        return gen.MatchedStop(eos_token_id=matched)
    return gen.MatchedStop(token_id=matched)


def step(delta: Delta, tag: TreeTag, level: int) -> gen.SpecStep:
    """Return one verified step; with its tree at TRACE_LEVEL_FULL_TREE."""
    message = gen.SpecStep(
        cycle=delta.cycle,
        committed_length=delta.committed_length,
        num_draft_tokens=delta.tree.num_nodes - 1,
        nodes=delta.nodes,
        emitted_ids=delta.token_ids,
    )
    if delta.digest is not None:
        message.digest = delta.digest
    if level == gen.TRACE_LEVEL_FULL_TREE:
        message.tree.CopyFrom(tree_to_proto(delta.tree, tag))
    return message


def logprobs(delta: Delta) -> list[pb.path_pb2.EmittedLogprobs]:
    """Return the log-probabilities of a delta's tokens."""
    return list(logprobs_to_proto(delta.logprobs))
