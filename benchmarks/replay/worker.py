"""One arm's engine in a process of its own: requests in, results out, a JSON object a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

from benchmarks.replay.arms import ARMS, Arm, Change
from services.commands.options import EMBEDDED_MODEL
from services.contract.config import EngineConfig
from services.contract.sampling import Drafting
from services.gateway.engine import Engine, Generation
from services.gateway.requests import Event, GenerationRequest


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What the parent fixes for all arms of a run."""

    arm: str
    model: str = str(EMBEDDED_MODEL)
    threads: int = 2
    context_length: int = 9216
    device: str = "cpu"


def main() -> None:
    """Load the arm's engine, say ready, answer requests until the input ends."""
    options = WorkerOptions(**json.loads(sys.argv[1]))
    arm = ARMS[options.arm]
    replace_names(arm.changes)
    engine = Engine.open(engine_config(arm, options))
    try:
        _say({"ready": True, "stats": engine.group.stats()})
        for line in sys.stdin:
            _say(answer(engine, arm, json.loads(line)))
    finally:
        engine.close()


def replace_names(changes: Iterable[Change]) -> None:
    """Replace names of the engine in this process.

    Raises  AttributeError for a name that is gone: the arm would measure the engine unchanged.
    """
    for change in changes:
        module, _, path = change.place.partition(":")
        *owners, name = path.split(".")
        owner: object = reduce(getattr, owners, import_module(module))
        getattr(owner, name)
        setattr(owner, name, change.value)


def engine_config(arm: Arm, options: WorkerOptions) -> EngineConfig:
    """Return the engine configuration of an arm."""
    return EngineConfig(
        model=options.model,
        runtime=arm.runtime,
        device=options.device,
        threads=options.threads,
        max_sequences=1,
        context_length=options.context_length,
    )


def answer(engine: Engine, arm: Arm, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one request."""
    ids = tuple(asked["token_ids"])
    request = GenerationRequest(
        request_id=engine.next_request_id(),
        prompt_ids=ids,
        sampling=engine.defaults.resolve_sampling(asked["sampling"]),
        budget=engine.defaults.resolve_budget(
            len(ids), asked["max_tokens"], ignore_eos=asked.get("ignore_eos", False)
        ),
        drafting=Drafting(arm.shape, "mtp", arm.suffix, asked["tenant"]),
        sink=_ignore,
    )
    return result_of(engine.generate(request))


def result_of(generation: Generation) -> dict[str, Any]:
    """Return a generation's measured facts."""
    finished = generation.finished
    spec, timing = finished.speculation, finished.timing
    first = len(generation.deltas[0].token_ids) if generation.deltas else 0
    return {
        "token_ids": list(finished.token_ids),
        "prompt_tokens": finished.prompt_tokens,
        "first_tokens": first,
        "ttft_ms": timing.ttft_ms,
        "prefill_ms": timing.prefill_ms,
        "decode_ms": timing.decode_ms,
        "cycles": spec.num_spec_steps,
        "drafted": spec.num_draft_tokens,
        "accepted": spec.num_accepted_draft_tokens,
        "accepted_by_depth": list(spec.accepted_by_depth),
        "acceptance_histogram": list(spec.acceptance_histogram),
        "accepted_by_source": spec.accepted_by_source,
        "drafted_by_source": spec.drafted_by_source,
        "spans_ms": finished.spans_ms,
        "finish_reason": finished.reason.value,
        "seed": generation.seed,
    }


def _ignore(event: Event) -> None:
    del event


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
