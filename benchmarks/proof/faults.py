"""Planted faults: each must be seen in its own cycle, and a clean run must give no signal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from benchmarks.proof.check import Check
from benchmarks.proof.plain import Truth, plain_truth
from benchmarks.proof.world import World, run_eagerly
from services.committer.publish import STEPS
from services.contract import pb
from services.contract.errors import UnavailableError
from services.contract.topology import NodeSource
from services.contract.tree import Tree
from tests.faults.planted import FAULTS, Fault, next_root, pending
from tests.ring import Ring, root_only

FAMILY = "faults"
ROOT = "root identity"
CLEAN = Fault("clean run", lambda ring: None)


@dataclass
class Seen:
    """What one planted fault showed.

    Args    signals: checks that failed in its own cycle. tokens_after: cycles until a greedy
            token differed; None within the rules' limit. refused: the next cycle was refused.
            is_fault: false where a stale root is by chance the right one.
    """

    signals: list[str]
    tokens_after: int | None
    refused: bool
    is_fault: bool


def spine(part: pb.stage_pb2.CycleSequence, ahead: list[int], depth: int = 3) -> Tree:
    """Return true tokens below each other, each behind a wrong sibling."""
    parents, tokens, parent = [-1], [part.root_id], 0
    for true in ahead[:depth]:
        parents += [parent, parent]
        tokens += [(true + 1) % 150, true]
        parent = len(tokens) - 1
    sources = (int(NodeSource.ROOT),) + (int(NodeSource.TEST),) * (len(tokens) - 1)
    return Tree(tuple(parents), tuple(tokens), sources, (0.0,) * len(tokens))


class Case:
    """One prefix with its plain run, and stages in which a fault is planted."""

    def __init__(self, world: World, prefix: int) -> None:
        self.rules = world.rules[FAMILY]
        self.prompt = world.prefix(prefix)
        cycles = self.rules["at_cycle"] + self.rules["tries"] + self.rules["later"] + 1
        self.truth: Truth = plain_truth(world, self.prompt, 4 * cycles + 16)
        self.ring: Ring = world.ring(len(self.prompt))
        run_eagerly(self.ring)

    def run(self, fault: Fault, at_cycle: int) -> Seen:
        """Plant the fault in one cycle of a fresh sequence."""
        ring = self.ring
        honest = ring.verifier.admit
        ring.rewire()
        if fault.needs == "reuse":
            self._first_owner()
            fault.plant(ring)
        ring.start(0, self.prompt)
        ring.verifier.admit = honest
        ring.drafter.draft = self._draft
        for _ in range(0 if fault.needs == "reuse" else at_cycle):
            ring.cycle(0)
        if fault.needs == "root":
            ring.drafter.draft = root_only
        if fault.needs != "reuse":
            fault.plant(ring)
        seen = self._broken_cycle()
        self._end()
        return seen

    def _broken_cycle(self) -> Seen:
        ring = self.ring
        root = ring.rows[0].root
        ring.cycle(0)
        ring.committer.steps = dict(STEPS)
        signals = self.signals()
        same_root = ring.rows[0].root == root and not signals
        after, refused = self._tokens_after()
        return Seen(signals, after, refused, not same_root)

    def signals(self) -> list[str]:
        """Return the surfaces that differ from plain decoding, and the root if it does."""
        ring = self.ring
        found = self.truth.differing_surfaces(ring)
        if not next_root(ring, 0) == pending(ring, 0) == ring.rows[0].root:
            found.append(ROOT)
        return found

    def _draft(self, part: pb.stage_pb2.CycleSequence) -> Tree:
        return spine(part, self.truth.emitted[len(self.ring.rows[0].emitted) :])

    def _first_owner(self) -> None:
        """Let another sequence use the slot first."""
        self.ring.start(0, self.prompt[::-1][:40])
        self.ring.drafter.draft = root_only
        for _ in range(3):
            self.ring.cycle(0)
        self.ring.release(0)

    def _tokens_after(self) -> tuple[int | None, bool]:
        ring, emitted = self.ring, self.ring.rows[0].emitted
        ring.drafter.draft = self._draft
        for cycle in range(self.rules["later"] + 1):
            if emitted != self.truth.emitted[: len(emitted)]:
                return cycle, False
            try:
                ring.cycle(0)
            except (AssertionError, UnavailableError):
                return None, True
        return None, False

    def _end(self) -> None:
        """Drop the sequence, whatever state it is in."""
        self.ring.rows.clear()
        self.ring.rewire()


class Cases:
    """The cases of a run, made when first asked for."""

    def __init__(self, world: World) -> None:
        self.rules = world.rules[FAMILY]
        self.case = cache(lambda prefix: Case(world, prefix))

    def plant(self, fault: Fault, prefix: int) -> Seen:
        """Plant a fault; take a later cycle where it happens to be none."""
        start = self.rules["at_cycle"]
        for at_cycle in range(start, start + self.rules["tries"]):
            seen = self.case(prefix).run(fault, at_cycle)
            if seen.is_fault or fault is CLEAN:
                return seen
        return seen


def late(seen: Seen) -> str:
    """Say when greedy tokens alone would have told."""
    if seen.refused:
        return "never: the next cycle was refused"
    if seen.tokens_after is None:
        return "not within the cycles watched"
    return f"{seen.tokens_after} cycles later"


def run(world: World) -> Iterator[Check]:
    """Yield one row a fault kind; the control is the clean run of the same prefixes."""
    cases, prefixes = Cases(world), world.rules[FAMILY]["prefixes"]
    clean = [cases.plant(CLEAN, prefix) for prefix in prefixes]
    is_quiet = all(not seen.signals and seen.tokens_after is None for seen in clean)
    for fault in FAULTS:
        found = [cases.plant(fault, prefix) for prefix in prefixes]
        passed = sum(seen.is_fault and bool(seen.signals) for seen in found)
        detail = {
            "seen_by": sorted({name for seen in found for name in seen.signals}),
            "tokens_alone": [late(seen) for seen in found],
        }
        yield Check(FAMILY, fault.name, len(found), passed, is_quiet, detail)
