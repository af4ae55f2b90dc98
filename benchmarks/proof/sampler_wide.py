"""The sampler over the 27B's whole vocabulary: walks and the uniform grid, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.proof.check import Check
from benchmarks.proof.sampler import made_case
from benchmarks.proof.sampler_more import count_error
from benchmarks.proof.sampler_rig import Tokens, counter_words, draw_rows
from benchmarks.proof.world import World
from services.contract.sampling import SamplingParams
from tests.sampling import Case, chi_square_p, grid_words, make_case

FAMILY, RULES = "size27b", "sampler"
TOP = 10.5  # the largest of so many made logits are about as high


def wide_checks(world: World) -> Iterator[Check]:
    """Yield forced visits to every live row, and the grid with a temperature 1% off."""
    rules = world.rules[RULES]
    wide = rules["wide"]
    params = SamplingParams(**rules["sampling"], seed=world.seed)
    made = (
        made_case(world.seed + i, params, wide["vocab"], 0.0, TOP) for i in range(wide["steps"])
    )
    steps = [Step(case, world, index) for index, case in enumerate(made)]
    tails = [p for step in steps for p in step.tails(shift=0)]
    held = sum(p >= rules["alpha"] / len(tails) for p in tails)
    shifted = [p for step in steps for p in step.tails(shift=1)]
    fired = min(shifted) < rules["alpha"] / len(shifted)
    detail = {"walks": wide["walks"] * len(steps), "vocab": wide["vocab"]}
    name = "forced visits, whole vocabulary"
    yield Check(FAMILY, name, len(tails), held, fired, detail)
    errors = [error for step in steps for error in step.grid_errors(1.0)]
    planted = max(steps[0].grid_errors(1.01))
    held = sum(error <= rules["grid_bound"] for error in errors)
    fired = planted > rules["grid_fault_bound"]
    detail = {"worst": max(errors), "planted": planted, "points": wide["grid_points"]}
    yield Check(FAMILY, "uniform grid, whole vocabulary", len(errors), held, fired, detail)


class Step:
    """One made tree over the whole vocabulary and its rows' exact probabilities."""

    def __init__(self, case: Case, world: World, index: int) -> None:
        self.case, self.device = case, world.device
        self.wide: dict[str, Any] = world.rules[RULES]["wide"]
        self.nodes = range(case.tree.num_nodes)
        self.probabilities = [case.probabilities(node) for node in self.nodes]
        seeds = np.random.default_rng(world.seed + index).integers(0, 1 << 62, self.wide["walks"])
        words = counter_words(case, seeds.astype(np.uint64))
        self.drawn = draw_rows(case, words, self.device, self.wide["batch"])

    def tails(self, shift: int) -> list[float]:
        """Return the tail probability of every row's draws against the row `shift` before it."""
        wanted = [self.probabilities[node - shift] for node in self.nodes]
        return [chi_square_p(self._counts(self.drawn, n), wanted[n]) for n in self.nodes]

    def grid_errors(self, warmer: float) -> list[float]:
        """Return each row's largest |count - M p| over equally spaced uniforms.

        Args    warmer: factor of the temperature that the sampler is given.
        """
        words = np.repeat(grid_words(self.wide["grid_points"])[:, None], 16, 1)
        sequence = self.case.sequence
        params = sequence.params
        params = replace(params, temperature=params.temperature * warmer)
        case = make_case(self.case.tree, replace(sequence, params=params), self.case.logits)
        drawn = draw_rows(case, words, self.device, self.wide["batch"])
        pairs = ((self._counts(drawn, n), self.probabilities[n]) for n in self.nodes)
        return [count_error(counts, exact) for counts, exact in pairs]

    def _counts(self, drawn: Tokens, node: int) -> np.ndarray:
        return np.bincount(drawn[:, node], minlength=self.case.logits.shape[2])
