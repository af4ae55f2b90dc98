"""N12: any program of a sequence's life leaves plain bits, one owner a slot, and nothing lost."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.contract.errors import UnavailableError
from services.runtime.failpoints import NAMES, TEST_MODE, arm_from, disarm
from services.runtime.stage import StageMessage
from tests.lifecycle.world import MOST, NUM_PAGES, SLOTS, Live, World

EVENTS = {
    *("admit", "refused", "cancel", "cancel while prefilling", "resume", "old reference"),
    *(f"cycle of {count}" for count in range(1, 3)),
}
SEEDS = st.integers(0, 2**32 - 1)


class Life(RuleBasedStateMachine):
    """Admit, prefill, draft, verify, publish, cancel, evict, resume, and a stage's death."""

    world: World
    seen: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.world.begin()

    def ready(self) -> list[Live]:
        return [x for x in self.world.live if x.is_prefilled and len(x.row.emitted) < MOST]

    @precondition(lambda self: self.world.slots.num_free or not self.ready())
    @rule(index=st.integers(0, 4), chunks=st.integers(0, 3))
    def admit(self, index: int, chunks: int) -> None:
        live = self.world.admit(self.world.truths[index], [])
        self.seen["refused" if live is None else "admit"] += 1
        if live is None:
            return
        before = self.world.generations.get(live.ref.slot, 0)
        assert live.ref.generation > before, "the generation of a reused slot must grow"
        self.world.generations[live.ref.slot] = live.ref.generation
        digest = self.world.ring.digest(live.ref.slot)
        assert digest == self.world.fresh, "a fresh row holds something of its last owner"
        while chunks and not live.is_prefilled:
            self.world.prefill(live)
            chunks -= 1

    @precondition(lambda self: any(not live.is_prefilled for live in self.world.live))
    @rule(seed=SEEDS)
    def prefill(self, seed: int) -> None:
        waiting = [live for live in self.world.live if not live.is_prefilled]
        self.world.prefill(random.Random(seed).choice(waiting))

    @precondition(lambda self: self.ready())
    @rule(seed=SEEDS, rounds=st.integers(1, 4))
    def cycle(self, seed: int, rounds: int) -> None:
        rng = random.Random(seed)
        for _ in range(rounds):
            ready = self.ready()
            slab = rng.sample(ready, rng.randint(min(1, len(ready)), len(ready)))
            if slab:
                self.world.cycle(slab, rng)
                self.seen[f"cycle of {len(slab)}"] += 1

    @precondition(lambda self: len(self.world.live) > 1)
    @rule(seed=SEEDS)
    def cancel(self, seed: int) -> None:
        live = random.Random(seed).choice(self.world.live)
        self.seen["cancel" if live.is_prefilled else "cancel while prefilling"] += 1
        self.world.release(live)

    @precondition(lambda self: any(live.row.emitted for live in self.world.live))
    @rule(seed=SEEDS)
    def evict_and_resume(self, seed: int) -> None:
        rng = random.Random(seed)
        live = rng.choice([live for live in self.world.live if live.row.emitted])
        held, emitted = self.world.ring.digest(live.ref.slot), list(live.row.emitted)
        self.world.release(live)
        again = self.world.admit(live.truth, emitted)
        assert again is not None
        while not again.is_prefilled:
            self.world.prefill(again)
        while again.replay:
            self.world.cycle([again], rng)
        assert again.row.emitted == emitted
        assert self.world.ring.digest(again.ref.slot) == held
        self.seen["resume"] += 1

    @precondition(lambda self: self.world.released)
    @rule(seed=SEEDS)
    def old_reference(self, seed: int) -> None:
        """Send a cycle and a release of a sequence that is gone."""
        self.seen["old reference"] += 1
        gone = random.Random(seed).choice(self.world.released)
        message = StageMessage()
        message.release.slot, message.release.generation = gone.ref.slot, gone.ref.generation
        assert self.world.ring.group.send(message).WhichOneof("body") == "failure"
        message = StageMessage()
        message.cycle.sequences.add(
            slot=gone.ref.slot,
            generation=gone.ref.generation,
            cycle=gone.row.cycle,
            committed_length=gone.row.length,
            root_id=gone.row.root,
        )
        self.world.draft(random.Random(seed))
        assert self.world.ring.group.send(message).WhichOneof("body") == "failure"

    @precondition(lambda self: self.ready())
    @rule(seed=SEEDS, name=st.sampled_from(sorted(NAMES)))
    def stage_dies(self, seed: int, name: str) -> None:
        """Break a cycle in the middle; nothing is half published, and the group starts anew."""
        rng = random.Random(seed)
        victim = rng.choice(self.ready())
        before, slot = self.world.ring.digest(victim.ref.slot), victim.ref.slot
        arm_from(f"{name}=raise")
        try:
            self.world.cycle([victim], rng)
            raise RuntimeError(f"{name} was not reached")
        except UnavailableError:
            published = name == "committer.send"
            assert published or self.world.ring.digest(slot) == before
        finally:
            disarm()
        self.seen[name] += 1
        self.world.ring.rewire()
        for live in list(self.world.live):
            self.world.forget(live)
        self.world.released.clear()

    @invariant()
    def every_sequence_has_plain_bits(self) -> None:
        for live in self.world.live:
            if live.is_prefilled and not live.replay:
                emitted = live.row.emitted
                assert emitted == live.truth.emitted[: len(emitted)]
                wanted = live.truth.digests[live.row.length]
                assert self.world.ring.digest(live.ref.slot) == wanted

    @invariant()
    def nothing_is_lost_or_owned_twice(self) -> None:
        world = self.world
        world.slots.check_integrity()
        world.pages.check_integrity()
        owned = [page for live in world.live for page in live.pages]
        assert len(set(owned)) == len(owned) == world.pages.num_used
        assert len({live.ref.slot for live in world.live}) == world.slots.num_used
        assert world.slots.num_free + world.slots.num_used == SLOTS
        assert world.pages.num_free + world.pages.num_used == NUM_PAGES


@pytest.fixture(scope="module")
def world(tiny: Path) -> World:
    return World(tiny)


def run(world: World, programs: int) -> Counter[str]:
    """Run random programs; return how often each thing happened."""
    seen: Counter[str] = Counter()
    made = type("Program", (Life,), {"world": world, "seen": seen})
    run_state_machine_as_test(
        made,
        settings=settings(
            max_examples=programs,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return seen


@pytest.fixture(autouse=True)
def test_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_MODE, "1")


def test_programs_keep_every_promise(world: World) -> None:
    seen = run(world, 40)
    print(dict(seen))
    assert set(seen) >= EVENTS


@pytest.mark.slow
def test_five_hundred_programs_keep_every_promise(world: World) -> None:
    assert set(run(world, 500)) >= EVENTS | NAMES | {"cycle of 3", "cycle of 4"}


def keep_recurrent_rows(world: World) -> Callable[[], None]:
    """Break the clearing of a slot's rows; return what mends it."""
    honest, rows = world.ring.verifier.admit, world.ring.arenas.verifier["recurrent"]

    def admit(message: StageMessage) -> StageMessage:
        kept = rows.clone()
        reply = honest(message)
        rows.copy_(kept)
        return reply

    world.ring.verifier.admit = admit
    return lambda: setattr(world.ring.verifier, "admit", honest)


def test_a_row_that_is_not_cleared_is_noticed(world: World) -> None:
    mend = keep_recurrent_rows(world)
    try:
        with pytest.raises(AssertionError, match="fresh row"):
            run(world, 25)
    finally:
        mend()
