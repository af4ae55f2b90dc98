"""N11: every planted fault is seen in its own cycle; a clean run gives no signal."""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.committer.publish import STEPS
from services.contract import pb
from services.contract.errors import UnavailableError
from services.contract.topology import NodeSource
from services.contract.tree import Tree
from tests.drafts import KnownDraft, plain_run
from tests.faults.planted import DIGEST, FAULTS, ROOT, Fault, next_root, pending
from tests.ring import Ring, root_only

AT_CYCLE = 3
LATER = 5


@dataclass
class Seen:
    """Signals after the planted cycle, and when the tokens alone would have told.

    Args    same_root: the cycle left pending the very token that was its root, so that a stale
            root is no fault.
    """

    signals: set[str]
    tokens_after: int | None
    same_root: bool


def wide_spine(part: pb.stage_pb2.CycleSequence, ahead: list[int]) -> Tree:
    """Return three true tokens below each other, each behind a wrong sibling."""
    parents, tokens, parent = [-1], [part.root_id], 0
    for true in ahead[:3]:
        parents += [parent, parent]
        tokens += [(true + 1) % 150, true]
        parent = len(tokens) - 1
    sources = (int(NodeSource.ROOT),) + (int(NodeSource.TEST),) * (len(tokens) - 1)
    return Tree(tuple(parents), tuple(tokens), sources, (0.0,) * len(tokens))


class Case:
    """One prompt, its plain run, and a ring in which a fault is planted."""

    def __init__(self, tiny: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.prompt = [self.rng.randrange(150) for _ in range(self.rng.randint(5, 70))]
        plain = Ring(tiny)
        self.digests = plain_run(plain, self.prompt, 16 * (AT_CYCLE + LATER + 1))
        self.truth = plain.rows[0].emitted
        self.ring = Ring(tiny, poison=True)

    def run(self, fault: Fault | None) -> Seen:
        ring = self.ring
        if fault and fault.needs == "reuse":
            self._first_owner()
            fault.plant(ring)
        ring.start(0, self.prompt)
        if not fault or fault.needs != "reuse":
            self._clean_cycles(fault)
        ring.drafter.draft = self._broken_draft(fault)
        if fault:
            fault.plant(ring)
        root = ring.rows[0].root
        ring.cycle(0)
        ring.committer.steps = dict(STEPS)
        same_root = ring.rows[0].root == root
        return Seen(self.signals(), self._tokens_after() if fault else None, same_root)

    def signals(self) -> set[str]:
        row, found = self.ring.rows[0], set()
        if self.ring.digest(0) != self.digests[row.length]:
            found.add(DIGEST)
        if next_root(self.ring, 0) != pending(self.ring, 0) or pending(self.ring, 0) != row.root:
            found.add(ROOT)
        return found

    def _first_owner(self) -> None:
        self.ring.start(0, [self.rng.randrange(150) for _ in range(40)])
        for _ in range(3):
            self.ring.cycle(0)
        self.ring.release(0)

    def _clean_cycles(self, fault: Fault | None) -> None:
        last = ("chain",) if fault and fault.needs == "root" else ("mixed", "full", "root")
        for cycle in range(AT_CYCLE):
            patterns = last if cycle == AT_CYCLE - 1 else ("mixed", "full", "root")
            self.ring.drafter.draft = KnownDraft(self.ring, {0: self.truth}, self.rng, patterns)
            self.ring.cycle(0)
            assert self.signals() == set()

    def _broken_draft(self, fault: Fault | None) -> object:
        if fault and fault.needs == "root":
            return root_only
        return lambda part: wide_spine(part, self.truth[len(self.ring.rows[0].emitted) :])

    def _tokens_after(self) -> int | None:
        """Return after how many cycles the emitted tokens differ, if within five."""
        self.ring.drafter.draft = KnownDraft(self.ring, {0: self.truth}, self.rng)
        for cycle in range(LATER + 1):
            emitted = self.ring.rows[0].emitted
            if emitted != self.truth[: len(emitted)]:
                return cycle
            try:
                self.ring.cycle(0)
            except (AssertionError, UnavailableError):
                return None
        return None


def check(tiny: Path, fault: Fault, seed: int) -> bool:
    seen = Case(tiny, seed).run(fault)
    late = "never in 5 cycles" if seen.tokens_after is None else f"{seen.tokens_after} cycles later"
    if fault.seen_by == ROOT and seen.same_root:
        assert not seen.signals
        return False
    print(f"{fault.name}: {sorted(seen.signals)} in its own cycle; tokens alone: {late}")
    assert fault.seen_by in seen.signals, f"{fault.name} was not seen"
    return True


def check_many(tiny: Path, fault: Fault, seed: int, count: int) -> None:
    """Plant the fault in `count` cases; a case in which it is no fault does not count."""
    found, index = 0, 0
    while found < count:
        found += check(tiny, fault, seed + index)
        index += 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_seen_in_its_own_cycle(tiny: Path, seed: int, fault: Fault) -> None:
    check_many(tiny, fault, seed, 4)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_seen_for_twenty_seeds(tiny: Path, seed: int, fault: Fault) -> None:
    check_many(tiny, fault, seed, 20)


@pytest.mark.parametrize("needs", ["accept", "root"])
def test_clean_run_gives_no_signal(tiny: Path, seed: int, needs: str) -> None:
    clean = Fault("clean", lambda ring: None, needs=needs)
    seen = Case(tiny, seed).run(clean)
    assert seen.signals == set()
    assert seen.tokens_after is None


def test_the_table_holds_the_ten_faults() -> None:
    assert len({fault.name for fault in FAULTS}) >= 10


def test_stale_root_is_refused_by_the_next_cycle(tiny: Path, seed: int) -> None:
    case = Case(tiny, seed)
    fault = next(fault for fault in FAULTS if fault.name == "stale_root")
    case.ring.start(0, case.prompt)
    case.ring.drafter.draft = case._broken_draft(fault)
    fault.plant(case.ring)
    case.ring.cycle(0)
    before = case.ring.digest(0)
    reply = case.ring.group.send(case.ring.message(0))
    assert "root is not the pending token" in reply.failure.message
    assert case.ring.digest(0) == before
