"""Replay requests through several arms in one run, in alternating order."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from benchmarks.replay.corpus import CorpusRequest
from benchmarks.replay.process import Answering, ArmEnded

SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "presence_penalty": 1.0}


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does.

    Args    max_tokens: cap an answer. seed: one for all arms, None for fresh ones.
    """

    max_tokens: int
    repeats: int
    seed: int | None


@dataclass(slots=True)
class Outcome:
    """What has come of a run so far: a record an answer, and why an arm ended early."""

    records: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False


def replay(
    arms: Sequence[Answering],
    requests: Sequence[CorpusRequest],
    plan: Plan,
    outcome: Outcome,
    advance: Callable[[str, str], None],
) -> None:
    """Add a record to `outcome` for each arm, request and repeat.

    The arms take turns on each request; their order rotates with request and repeat. Every
    repeat has a tenant of its own, so that no arm drafts from an earlier run of a request. An
    arm that ends is left out from there on.
    """
    for repeat in range(plan.repeats):
        for index, request in enumerate(requests):
            for offset in range(len(arms)):
                arm = arms[(index + repeat + offset) % len(arms)]
                advance(arm.arm.name, request.id)
                if arm.arm.name not in outcome.failures:
                    _ask(arm, request, plan, repeat, outcome)
    outcome.is_complete = True


def _ask(arm: Answering, request: CorpusRequest, plan: Plan, repeat: int, outcome: Outcome) -> None:
    name = arm.arm.name
    try:
        result = arm.ask(asked(request.token_ids, plan, f"{request.corpus}-{repeat}"))
    except ArmEnded as error:
        outcome.failures[name] = f"{error} (at {request.id}, repeat {repeat})"
        return
    outcome.records.append(_record(name, request, repeat, result))


def asked(token_ids: Sequence[int], plan: Plan, tenant: str) -> dict[str, Any]:
    """Return what a worker is asked."""
    seeded = {} if plan.seed is None else {"seed": plan.seed}
    return {
        "token_ids": token_ids,
        "max_tokens": plan.max_tokens,
        "sampling": {**SAMPLING, **seeded},
        "tenant": tenant,
    }


def _record(
    arm: str, request: CorpusRequest, repeat: int, result: dict[str, Any]
) -> dict[str, Any]:
    ids = result.pop("token_ids")
    digest = hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()
    where = {"arm": arm, "corpus": request.corpus, "request": request.id, "repeat": repeat}
    return {**where, "tokens": len(ids), "tokens_sha256": digest, **result}


def provenance(plan: Plan, corpora: dict[str, str], threads: int) -> dict[str, Any]:
    """Return what is needed to judge and repeat a run."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "plan": asdict(plan),
        "sampling": SAMPLING,
        "corpora_sha256": corpora,
        "corpora_note": "constructed mechanically from source code, not recorded from an agent",
        "threads": threads,
        "machine": platform.machine(),
        "processor": _processor(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("lumotree", "torch", "numba", "numpy")},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return f"{names[0]} x {len(names)}" if names else platform.processor()
