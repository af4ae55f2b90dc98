"""Prompt and decode rates of one engine, behind a gate."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.replay.arms import ARMS
from benchmarks.replay.corpus import CORPORA, load_corpus
from benchmarks.replay.run import SAMPLING
from benchmarks.replay.worker import answer
from services.contract.errors import InvalidField
from services.gateway.engine import Engine

_GATE_PROMPT, _GATE_TOKENS = 300, 48


@dataclass(frozen=True, slots=True)
class Row:
    """One test: pp = prompt tokens processed, tg = tokens generated behind `depth` tokens.

    Args    accepted_drafts_per_cycle: None of a prompt.
    """

    arm: str
    test: str
    tokens_per_second: float
    deviation: float
    accepted_drafts_per_cycle: float | None = None


class Measure:
    """Time an engine on the start of a corpus' longest prompt.

    Texts are sampled and do not end early; repeat r has seed r in every arm, so arms emit the
    same tokens and repeats do not. The tokens of the first cycle are left out.
    """

    def __init__(self, engine: Engine, text: Sequence[int], repeats: int) -> None:
        self._engine = engine
        self._text = text
        self._repeats = repeats

    def gate(self, names: Sequence[str]) -> None:
        """Refuse arms whose texts differ; runs every arm once, which warms it up."""
        found = {tuple(self._run(n, _GATE_PROMPT, _GATE_TOKENS, 0)["token_ids"]) for n in names}
        if len(found) > 1:
            raise InvalidField("GATE", "the arms' texts differ; run lumotree verify", "arms")

    def prompts(self, sizes: Sequence[int]) -> Iterator[Row]:
        """Yield the rate of each prompt size; every arm prefills alike."""
        for size in sizes:
            results = [self._run("plain", size, 1, seed) for seed in range(self._repeats)]
            yield _row("-", f"pp{size}", [size / r["prefill_ms"] * 1e3 for r in results])

    def decodes(self, name: str, depths: Sequence[int], tokens: int) -> Iterator[Row]:
        """Yield the rate of one arm behind each depth."""
        for depth in depths:
            size = max(depth, 1)
            results = [self._run(name, size, tokens, seed) for seed in range(self._repeats)]
            rates = [(tokens - r["first_tokens"]) / r["decode_ms"] * 1e3 for r in results]
            accepted = sum(r["accepted"] for r in results) / sum(r["cycles"] for r in results)
            yield _row(name, f"tg{tokens} @ {depth}", rates, accepted)

    def _run(self, name: str, size: int, tokens: int, seed: int) -> dict[str, Any]:
        asked = {
            "token_ids": self._text[:size],
            "max_tokens": tokens,
            "ignore_eos": True,
            "sampling": {**SAMPLING, "seed": seed},
            "tenant": self._engine.next_request_id(),
        }
        return answer(self._engine, ARMS[name], asked)


def longest_prompt(model: Path) -> list[int]:
    """Return the ids of the first corpus' longest prompt."""
    requests = load_corpus(sorted(CORPORA.glob("astropy_*.jsonl"))[0], model, 0)
    longest = max(requests, key=lambda request: len(request.token_ids))
    return list(longest.token_ids)


def _row(arm: str, test: str, rates: list[float], accepted: float | None = None) -> Row:
    deviation = statistics.stdev(rates) if len(rates) > 1 else 0.0
    return Row(arm, test, statistics.mean(rates), deviation, accepted)
