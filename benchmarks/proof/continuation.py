"""Full-model continuation: natural trees over long prefixes, equal to plain decoding in bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.proof.check import Check, left_out
from benchmarks.proof.plain import PlainRows, Truth, plain_truth
from benchmarks.proof.world import World, cycle_tree, run_eagerly
from services.committer.publish import STEPS
from services.contract.sampling import Drafting
from services.contract.tree import Tree
from tests.ring import Ring, root_only

FAMILY = "continuation"
MOST_A_CYCLE = 16


@dataclass
class Tally:
    """What the cycles of all schedules showed."""

    cycles: int = 0
    greedy: int = 0
    digests: int = 0
    flushes: int = 0
    schedules: int = 0
    rows: int = 0
    wrong_rows: int = 0
    accepted: int = 0
    controls: list[bool] = field(default_factory=list)
    row_controls: list[bool] = field(default_factory=list)


def run(world: World) -> Iterator[Check]:
    """Yield the checks of the paper's VII-E."""
    rules, tally = world.rules[FAMILY], Tally()
    for index in range(len(world.rules["prefix_lengths"])):
        _prefix(world, index, tally)
        yield from ()
    detail: dict[str, Any] = {"accepted_drafts": tally.accepted}
    control = bool(tally.controls) and all(tally.controls)
    row_control = bool(tally.row_controls) and all(tally.row_controls)
    count = tally.cycles
    yield Check(FAMILY, "greedy tokens of every cycle", count, tally.greedy, control, detail)
    yield Check(FAMILY, "state digests of every cycle", count, tally.digests, control)
    yield Check(FAMILY, "flush steps", tally.schedules, tally.flushes, control)
    rows = tally.rows
    yield Check(FAMILY, "live rows of every forward", rows, rows - tally.wrong_rows, row_control)
    for name, why in rules["not_built"].items():
        yield left_out(FAMILY, f"{name} schedule", f"not built: {why}")
    from benchmarks.proof.library import envelope

    yield from envelope(world)


def harvest(world: World, prompt: list[int], cycles: int) -> list[Tree]:
    """Return the trees that the checkpoint's own drafter makes over some cycles."""
    ring = world.natural_ring(len(prompt))
    ring.start(0, prompt, drafting=Drafting("hydra27"))
    trees = [cycle_tree(ring)[0] for _ in range(cycles)]
    ring.release(0)
    return trees


def replayed(trees: list[Tree], ring: Ring) -> None:
    """Make the ring draft these trees in turn, and the root alone after them."""
    waiting = list(trees)
    ring.drafter.draft = lambda part: waiting.pop(0) if waiting else root_only(part)


def _prefix(world: World, index: int, tally: Tally) -> None:
    rules = world.rules[FAMILY]
    prompt, cycles = world.prefix(index), rules["cycles"]
    truth = plain_truth(world, prompt, MOST_A_CYCLE * cycles + 2)
    trees = harvest(world, prompt, cycles - 1)
    ring = world.ring(len(prompt))
    rows = PlainRows(world, ring)
    for _ in rules["schedules"]:
        _schedule(ring, rows, truth, trees, tally)
    tally.controls.append(_sees_a_lost_replay(ring, truth, trees))


def _schedule(ring: Ring, rows: PlainRows, truth: Truth, trees: list[Tree], tally: Tally) -> None:
    """Run the harvested cycles, a root-only one, and the step that flushes its token."""
    row = ring.start(0, truth.prompt)
    replayed(trees, ring)
    for _ in range(len(trees) + 1):
        rows.load(ring)
        tree, nodes = cycle_tree(ring)
        logits = ring.arenas.verifier["logits"][0]
        tally.wrong_rows += len(rows.wrong_rows(tree, logits))
        if tree.num_nodes > 1:
            tally.row_controls.append(rows.sees_swapped_parents(tree, logits))
        tally.rows += tree.num_nodes
        tally.cycles += 1
        tally.accepted += len(nodes) - 1
        tally.greedy += row.emitted == truth.emitted[: len(row.emitted)]
        tally.digests += not truth.differing_surfaces(ring)
    ring.cycle(0)
    is_plain = row.emitted == truth.emitted[: len(row.emitted)]
    tally.flushes += is_plain and not truth.differing_surfaces(ring)
    tally.schedules += 1
    ring.release(0)


def _sees_a_lost_replay(ring: Ring, truth: Truth, trees: list[Tree]) -> bool:
    """The inverse control: without the recurrent replay a cycle's digest must differ."""
    run_eagerly(ring)
    ring.start(0, truth.prompt)
    replayed(trees, ring)
    ring.committer.steps["recurrent_replay"] = lambda job: None
    ring.cycle(0)
    ring.committer.steps = dict(STEPS)
    return "recurrent" in truth.differing_surfaces(ring)
