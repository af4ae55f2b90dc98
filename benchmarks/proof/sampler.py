"""The sampler: captured rows by brute force, walks, the uniform grid, faults, seeded texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.proof.check import Check
from benchmarks.proof.sampler_faults import SAMPLER_FAULTS, Draw
from benchmarks.proof.sampler_rig import (
    BUDGET,
    Step,
    Words,
    captured_steps,
    compressed,
    counter_words,
    draw_rows,
    path_tokens,
    real_walks,
    walk_over,
    wanted_token,
)
from benchmarks.proof.world import World
from services.contract.sampling import SamplingParams
from services.kernels.cases import HYDRA27, make_tree
from services.kernels.sample import cases
from services.kernels.sample.cases import Sequence
from tests.sampling import Case, chi_square_p, grid_words, make_case

FAMILY = "sampler"
GRID, FORCED, WALKS = "uniform grid", "forced visits", "walks from the root"


def run(world: World) -> Iterator[Check]:
    """Yield the checks of the paper's VII-F, then what it lacks."""
    from benchmarks.proof.sampler_more import histories, random_rows, tied_rows

    rules = world.rules[FAMILY]
    params = SamplingParams(**rules["sampling"], seed=world.seed)
    steps = captured_steps(world, params, rules["captured_rows"])
    yield captured_rows(world, steps)
    yield histories(world, steps)
    chosen = fullest(steps, rules["steps"])
    audits = [Audit(world, compressed(step), index) for index, step in enumerate(chosen)]
    yield from _audits(rules, audits)
    yield from _faults(rules, audits)
    yield random_rows(world)
    yield tied_rows(world)


def fullest(steps: list[Step], count: int) -> list[Step]:
    """Return steps with the most live rows, spread over the capture."""
    most = max(step.tree.num_nodes for step in steps)
    full = [step for step in steps if step.tree.num_nodes >= most - 2]
    return [full[index * len(full) // count] for index in range(count)]


def captured_rows(world: World, steps: list[Step]) -> Check:
    """Compare what the verifier's sampler drew on its live rows with brute force."""
    rules = world.rules[FAMILY]
    seen = held = borders = moved = 0
    for step in steps:
        for node in range(min(step.tree.num_nodes, rules["captured_rows"] - seen)):
            history = path_tokens(step, node)
            token, is_border = wanted_token(step, node, history, rules["border"])
            held += token == step.drawn[node] or is_border
            borders += is_border
            if seen % 4 == 0:
                other, _ = wanted_token(step, node, history, rules["border"], later=1)
                moved += other != step.drawn[node]
            seen += 1
    detail = {"on_a_border": borders, "rows_the_next_random_number_changes": moved, "of": seen // 4}
    fired = moved > rules["shift_share"] * (seen // 4)
    return Check(FAMILY, "captured rows by brute force", seen, held, fired, detail)


class Audit:
    """One step's draws, and the tests that a way of drawing must pass."""

    def __init__(self, world: World, case: Case, index: int, scale: int = 1) -> None:
        self.rules, self.device, self.case = world.rules[FAMILY], world.device, case
        rng = np.random.default_rng(world.seed + index)
        count = self.rules["walks"] // scale // 2048 * 2048 if scale > 1 else self.rules["walks"]
        count = -(-count // 2048) * 2048 if world.device != "cpu" else count
        self.seeds: Words = rng.integers(0, 1 << 62, count).astype(np.uint64)
        self.words = counter_words(case, self.seeds)
        nodes = range(case.tree.num_nodes)
        self.probabilities = [case.probabilities(node) for node in nodes]
        self.vocab = case.logits.shape[2]

    def tails(self, draw: Draw) -> dict[str, list[float]]:
        """Return tail probabilities: of every row, and of rows that walks visit often."""
        tokens = draw(self.case, self.words, self.device)
        visited, _, _ = walk_over(self.case.tree, tokens)
        found: dict[str, list[float]] = {FORCED: [], WALKS: []}
        for node, probabilities in enumerate(self.probabilities):
            column, mine = tokens[:, node], visited[:, node]
            found[FORCED].append(self._tail(column, probabilities))
            if mine.sum() >= self.rules["min_visits"]:
                found[WALKS].append(self._tail(column[mine], probabilities))
        return found

    def grid_error(self, draw: Draw) -> float:
        """Return the worst |count - M p| of any row over equally spaced uniforms."""
        points = self.rules["grid_points"]
        words = np.repeat(grid_words(points)[:, None], 16, 1)
        tokens = draw(self.case, words, self.device)
        worst = 0.0
        for node, probabilities in enumerate(self.probabilities):
            counts = np.bincount(tokens[:, node], minlength=self.vocab)
            worst = max(worst, float(np.abs(counts - points * probabilities).max()))
        return worst

    def rejections(self, draw: Draw) -> tuple[dict[str, int], dict[str, int]]:
        """Return tests and rejections by audit; every audit has its own Bonferroni factor."""
        tails = self.tails(draw)
        alpha = self.rules["alpha"]
        bad = {name: sum(p < alpha / len(ps) for p in ps) for name, ps in tails.items()}
        return {name: len(ps) for name, ps in tails.items()}, bad

    def walks_alike(self) -> tuple[int, int, bool]:
        """Compare the sampler's own walks with walks over its draws, seed by seed."""
        count = self.rules["walked_on_device"] // 2000 * 2000
        seeds = self.seeds[:count]
        words = (
            self.words[:count] if self.device == "cpu" else self.words[: -(-count // 2048) * 2048]
        )
        tokens = draw_rows(self.case, words, self.device)[:count]
        _, last, pending = walk_over(self.case.tree, tokens)
        found_last, found_pending = real_walks(self.case, seeds, self.device)
        same = int(((last == found_last) & (pending == found_pending)).sum())
        moved = np.roll(pending, 1)
        return count, same, bool((moved != found_pending).any())

    def _tail(self, tokens: Any, probabilities: Any) -> float:
        counts = np.bincount(tokens, minlength=self.vocab)
        return chi_square_p(counts, probabilities)


def _audits(rules: dict[str, Any], audits: list[Audit]) -> Iterator[Check]:
    tests = {FORCED: 0, WALKS: 0}
    bad = {FORCED: 0, WALKS: 0}
    for audit in audits:
        counted, rejected = audit.rejections(draw_rows)
        for name in tests:
            tests[name] += counted[name]
            bad[name] += rejected[name]
    shifted = [audit.rejections(SAMPLER_FAULTS["rows_shifted"])[1] for audit in audits]
    for name in tests:
        fired = sum(found[name] for found in shifted) > 0
        detail = {"walks": sum(len(audit.seeds) for audit in audits)}
        yield Check(FAMILY, name, tests[name], tests[name] - bad[name], fired, detail)
    alike = [audit.walks_alike() for audit in audits]
    count, same = sum(a[0] for a in alike), sum(a[1] for a in alike)
    yield Check(FAMILY, "walks equal walks over draws", count, same, any(a[2] for a in alike))
    errors = [audit.grid_error(draw_rows) for audit in audits]
    rows = [audit.case.tree.num_nodes for audit in audits]
    held = sum(n for n, error in zip(rows, errors, strict=True) if error <= rules["grid_bound"])
    planted = [audit.grid_error(SAMPLER_FAULTS["temperature_1_percent"]) for audit in audits]
    detail = {"worst": max(errors), "points": rules["grid_points"], "planted": planted}
    fired = max(planted) > rules["grid_fault_bound"]
    yield Check(FAMILY, GRID, sum(rows), held, fired, detail)


def _faults(rules: dict[str, Any], audits: list[Audit]) -> Iterator[Check]:
    """Yield one row a planted fault; the control is the honest sampler, which must be quiet."""
    quiet = all(not seen_by(audit, draw_rows) for audit in audits[:1])
    for name, draw in SAMPLER_FAULTS.items():
        found = [seen_by(audit, draw) for audit in audits]
        steps = sum(bool(signals) for signals in found)
        by = {key: sum(key in signals for signals in found) for key in (GRID, FORCED, WALKS)}
        detail = {"steps_detected": steps, "steps": len(audits), "by": by}
        yield Check(FAMILY, f"planted {name}", 1, int(steps > 0), quiet, detail)


def seen_by(audit: Audit, draw: Draw) -> list[str]:
    """Return the audits that reject a way of drawing."""
    _, bad = audit.rejections(draw)
    found = [name for name, count in bad.items() if count]
    bound = audit.rules["grid_bound"] if draw is draw_rows else audit.rules["grid_fault_bound"]
    return [GRID, *found] if audit.grid_error(draw) > bound else found


def made_case(
    seed: int, params: SamplingParams, vocab: int = 64, tie_step: float = 0.0, top: float = 5.5
) -> Case:
    """Return a tree whose children have logits near `top`, so that walks spread over it."""
    rng = np.random.default_rng(seed)
    tree = cases.with_tokens(make_tree(HYDRA27), vocab, rng)
    emitted = tuple(int(t) for t in rng.integers(0, vocab, 9))
    logits = cases.make_logits(1, vocab, rng, tie_step)
    for node in range(tree.num_nodes):
        for rank, child in enumerate(tree.children(node)):
            logits[0, node, tree.token_ids[child]] = top - 0.5 * rank
    return make_case(tree, Sequence(params, BUDGET, (3, 4, 5), emitted), logits)


def planted_rows(world: World, name: str) -> tuple[int, int, list[str]]:
    """Draw with a planted fault on a made tree; return rows, rows that hold, what saw it."""
    params = SamplingParams(**world.rules[FAMILY]["sampling"], seed=world.seed)
    audit = Audit(world, made_case(world.seed, params), 0, scale=10)
    signals = seen_by(audit, SAMPLER_FAULTS[name])
    rows = audit.case.tree.num_nodes
    bad = sum(audit.rejections(SAMPLER_FAULTS[name])[1].values())
    return rows, rows - max(bad, int(bool(signals))) if bad < rows else 0, signals
