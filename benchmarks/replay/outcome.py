"""A run's outcome as the JSON that tables and reports are made from."""

from __future__ import annotations

from typing import Any

from benchmarks.replay.arms import ARMS
from benchmarks.replay.figures import differing_texts, ratio, summarise
from benchmarks.replay.run import Outcome

_TREES = ("hydra27", "adaptive")
_BASES = ("chain-3", "chain-5", "chain-7", "transformers", "vllm-plain", "hydra27")


def make_report(outcome: Outcome, source: dict[str, Any]) -> dict[str, Any]:
    """Return figures by arm, for each corpus and pooled, with the records they came from."""
    records = outcome.records
    measured = {record["arm"] for record in records}
    names = [name for name in ARMS if name in measured]
    exact = [name for name in names if ARMS[name].is_exact]
    corpora = sorted({record["corpus"] for record in records})
    return {
        "provenance": source,
        "is_complete": outcome.is_complete,
        "arms": {name: _facts(name) for name in names},
        "failures": outcome.failures,
        "figures": {
            corpus: {name: summarise(_of(records, name, corpus)) for name in names}
            for corpus in (*corpora, "all")
        },
        "ratios": [ratio(records, arm, base) for arm, base in _pairs(names)],
        "differing_texts": differing_texts(records, exact),
        "records": records,
    }


def _facts(name: str) -> dict[str, Any]:
    arm = ARMS[name]
    return {
        "is_exact": arm.is_exact,
        "shape": arm.shape,
        "base": arm.base,
        "runtime": arm.runtime,
        "changes": [change.place for change in arm.changes],
    }


def _pairs(names: list[str]) -> list[tuple[str, str]]:
    """Return which arms are compared: all with plain and their base, the trees with more."""
    pairs = dict.fromkeys((name, "plain") for name in names)
    pairs |= dict.fromkeys((name, ARMS[name].base) for name in names)
    pairs |= dict.fromkeys((tree, base) for tree in _TREES for base in _BASES)
    return [(a, b) for a, b in pairs if a != b and a in names and b in names]


def _of(records: list[dict[str, Any]], arm: str, corpus: str) -> list[dict[str, Any]]:
    return [r for r in records if r["arm"] == arm and corpus in (r["corpus"], "all")]
