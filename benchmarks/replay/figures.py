"""Pooled rates, acceptance and paired ratios of replay records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Record = dict[str, Any]
_RESAMPLES = 2000


def pooled_rate(records: Iterable[Record]) -> float:
    """Return sum(tokens - 1) / sum(time after the first token) in tokens/s (paper, eq. 5)."""
    tokens = seconds = 0.0
    for record in records:
        tokens += record["tokens"] - 1
        seconds += record["decode_ms"] / 1e3
    return tokens / max(seconds, 1e-9)


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Return one arm's figures: rate with its range over repeats, acceptance, spans a cycle."""
    by_repeat = defaultdict(list)
    for record in records:
        by_repeat[record["repeat"]].append(record)
    rates = [pooled_rate(part) for part in by_repeat.values()]
    cycles = sum(record.get("cycles", 0) for record in records)
    accepted = sum(record.get("accepted", 0) for record in records)
    return {
        "requests": len(records),
        "tokens": sum(record["tokens"] for record in records),
        "tokens_per_second": pooled_rate(records),
        "range": [min(rates), max(rates)],
        "cycles": cycles,
        "accepted_drafts_per_cycle": accepted / max(cycles, 1),
        "tokens_per_cycle": sum(r["tokens"] for r in records) / max(cycles, 1),
        "accepted_by_depth": _sum_lists(r.get("accepted_by_depth", []) for r in records),
        "acceptance_histogram": _sum_lists(r.get("acceptance_histogram", []) for r in records),
        "accepted_by_source": _sum_counts(r.get("accepted_by_source", {}) for r in records),
        "drafted_by_source": _sum_counts(r.get("drafted_by_source", {}) for r in records),
        "ms_per_cycle": _spans(records, cycles),
        "prefill_tokens_per_second": _prefill_rate(records),
    }


def ratio(records: Sequence[Record], arm: str, base: str, seed: int = 0) -> dict[str, Any]:
    """Return the ratio of pooled rates with a 95% interval, bootstrapped over requests."""
    over, under = _by_request(records, arm), _by_request(records, base)
    names = sorted(over.keys() & under.keys())
    sums = np.array([[*over[name], *under[name]] for name in names]).reshape(-1, 4)
    if not len(sums):
        return {"arm": arm, "base": base, "ratio": 0.0, "interval_95": [0.0, 0.0]}
    chosen = np.random.default_rng(seed).integers(0, len(sums), (_RESAMPLES, len(sums)))
    samples = _ratio(sums[chosen].sum(axis=1).T)
    interval = np.quantile(samples, (0.025, 0.975)).tolist()
    value = float(_ratio(sums.sum(axis=0)))
    return {"arm": arm, "base": base, "ratio": value, "interval_95": interval}


def _ratio(sums: np.ndarray) -> np.ndarray:
    """Return tokens / time of the first over that of the second; sums [4, ...]."""
    tokens, seconds, base_tokens, base_seconds = sums
    ratios: np.ndarray = tokens * base_seconds / np.maximum(seconds * base_tokens, 1e-9)
    return ratios


def _by_request(records: Sequence[Record], arm: str) -> dict[str, tuple[float, float]]:
    """Return (tokens after the first, seconds) of each request, over all repeats."""
    found: dict[str, tuple[float, float]] = {}
    for record in records:
        if record["arm"] == arm:
            tokens, seconds = found.get(record["request"], (0.0, 0.0))
            seconds += record["decode_ms"] / 1e3
            found[record["request"]] = tokens + record["tokens"] - 1, seconds
    return found


def differing_texts(records: Sequence[Record], arms: Sequence[str]) -> int:
    """Return at how many (request, repeat) the arms' token ids are not all the same."""
    seen: dict[tuple[str, int], set[str]] = defaultdict(set)
    for record in records:
        if record["arm"] in arms:
            seen[record["request"], record["repeat"]].add(record["tokens_sha256"])
    return sum(len(hashes) > 1 for hashes in seen.values())


def _spans(records: Sequence[Record], cycles: int) -> dict[str, float]:
    total = _sum_counts(record.get("spans_ms", {}) for record in records)
    spans = {name: value / max(cycles, 1) for name, value in total.items()}
    if "round" in spans:
        stages = sum(value for name, value in spans.items() if name != "round")
        spans["dispatch"] = spans["round"] - stages
    return spans


def _prefill_rate(records: Sequence[Record]) -> float:
    tokens = seconds = 0.0
    for record in records:
        tokens += record["prompt_tokens"]
        seconds += record.get("prefill_ms", 0.0) / 1e3
    return tokens / max(seconds, 1e-9)


def _sum_lists(rows: Iterable[Sequence[int]]) -> list[int]:
    total: list[int] = []
    for row in rows:
        total.extend([0] * (len(row) - len(total)))
        for index, value in enumerate(row):
            total[index] += value
    return total


def _sum_counts(counts: Iterable[dict[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
