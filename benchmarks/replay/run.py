"""Replay requests through several arms in one run, in alternating order."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from benchmarks.replay.corpus import CorpusRequest
from benchmarks.replay.process import Answering

SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "presence_penalty": 1.0}


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does.

    Args    max_tokens: cap an answer. seed: one for all arms, None for fresh ones.
    """

    max_tokens: int
    repeats: int
    seed: int | None


def replay(
    arms: Sequence[Answering],
    requests: Sequence[CorpusRequest],
    plan: Plan,
    advance: Callable[[str, dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Return one record for each arm, request and repeat.

    The arms take turns on each request; their order rotates with request and repeat. Every
    repeat has a tenant of its own, so that no arm drafts from an earlier run of a request.
    """
    records = []
    for repeat in range(plan.repeats):
        for index, request in enumerate(requests):
            for offset in range(len(arms)):
                arm = arms[(index + repeat + offset) % len(arms)]
                result = arm.ask(_asked(request, plan, repeat))
                record = _record(arm.arm.name, request, repeat, result)
                records.append(record)
                advance(arm.arm.name, record)
    return records


def _asked(request: CorpusRequest, plan: Plan, repeat: int) -> dict[str, Any]:
    sampling: dict[str, Any] = dict(SAMPLING)
    if plan.seed is not None:
        sampling["seed"] = plan.seed
    return {
        "token_ids": request.token_ids,
        "max_tokens": plan.max_tokens,
        "sampling": sampling,
        "tenant": f"{request.corpus}-{repeat}",
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
