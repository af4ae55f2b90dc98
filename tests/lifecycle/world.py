"""A gateway's books over the real stages, and the plain run that each sequence must follow."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from services.contract import pb
from services.contract.limits import MAX_DEPTH, PAGE
from services.contract.sampling import (
    Budget,
    Drafting,
    SamplingParams,
    budget_to_proto,
    drafting_to_proto,
    sampling_to_proto,
)
from services.contract.span import SlotRef
from services.contract.topology import NodeSource
from services.contract.tree import Tree
from services.runtime.pools import PagePool, SlotPool
from services.runtime.stage import StageMessage
from tests.drafts import KnownDraft, plain_run
from tests.ring import Ring, Row

SLOTS, NUM_PAGES, CONTEXT, GRID, MOST = 4, 9, 256, 64, 90
SAMPLED = SamplingParams(temperature=1.2, top_k=30, presence_penalty=0.5, seed=5)
BUDGET = Budget(MOST + 16, context_length=CONTEXT)


@dataclass
class Truth:
    """A prompt, its sampling, and what plain decoding makes of it."""

    prompt: list[int]
    sampling: SamplingParams
    emitted: list[int]
    digests: dict[int, bytes]


@dataclass
class Live:
    """A sequence that holds a slot.

    Args    replay: tokens still to be forced (a sequence that was evicted and resumes).
    """

    truth: Truth
    ref: SlotRef
    pages: list[int]
    row: Row
    done: int = 0
    is_prefilled: bool = False
    replay: list[int] = field(default_factory=list)


def truths(tiny: Path) -> list[Truth]:
    """Run every prompt plainly."""
    rng = random.Random(8)
    found = []
    for index, length in enumerate((1, 5, 64, 65, 129)):
        prompt = [rng.randrange(150) for _ in range(length)]
        sampling = SAMPLED if index % 2 else SamplingParams()
        ring = Ring(tiny, context=CONTEXT, grid=GRID)
        digests = plain_run(ring, prompt, MOST + 16, sampling=sampling, budget=BUDGET)
        found.append(Truth(prompt, sampling, ring.rows[0].emitted, digests))
    return found


class World:
    """Everything that the programs of one test share; a program starts and ends empty."""

    def __init__(self, tiny: Path) -> None:
        self.truths = truths(tiny)
        self.ring = Ring(tiny, SLOTS, CONTEXT, GRID, poison=True, num_pages=NUM_PAGES)
        self.begin()
        self.admit(self.truths[0], [])
        self.fresh = self.ring.digest(self.live[0].ref.slot)

    def begin(self) -> None:
        """Start a program: a new wiring, empty pools, and memory full of NaN."""
        self.ring.rewire()
        for arena in (self.ring.arenas.verifier, self.ring.arenas.committer):
            arena.poison()
        self.slots, self.pages = SlotPool(SLOTS), PagePool(NUM_PAGES)
        self.live: list[Live] = []
        self.released: list[Live] = []
        self.generations: dict[int, int] = {}

    def admit(self, truth: Truth, replay: list[int]) -> Live | None:
        """Give a sequence a slot and its pages, if there is room."""
        need = -(-min(len(truth.prompt) + MOST + 16, CONTEXT) // PAGE)
        if not self.slots.num_free or need > self.pages.num_free:
            return None
        ref, pages = self.slots.allocate("program"), self.pages.allocate(need)
        row = Row(ref.slot, ref.generation, truth.prompt[-1], 0)
        live = Live(truth, ref, pages, row, replay=list(replay))
        self.ring.ask(StageMessage(admit=self._admission(live)))
        self.live.append(live)
        return live

    def prefill(self, live: Live) -> None:
        """Feed the next chunk of a prompt."""
        prompt, start = live.truth.prompt, live.done
        end = min(start + GRID, len(prompt) - 1)
        live.is_prefilled = end == len(prompt) - 1
        chunk = pb.stage_pb2.PrefillChunk(
            slot=live.ref.slot,
            generation=live.ref.generation,
            start=start,
            token_ids=prompt[start:end],
            next_token_id=prompt[end],
            is_last=live.is_prefilled,
            new_pages=() if start else live.pages,
        )
        self.ring.ask(StageMessage(prefill=chunk))
        live.done = live.row.length = end

    def draft(self, rng: random.Random) -> None:
        """Draft around what plain decoding emits, or force what an evicted sequence emitted."""
        self.ring.rows = {live.ref.slot: live.row for live in self.live if live.is_prefilled}
        by_slot = {live.ref.slot: live for live in self.live}
        known = {slot: live.truth.emitted for slot, live in by_slot.items()}
        free = KnownDraft(self.ring, known, rng)

        def choose(part: pb.stage_pb2.CycleSequence) -> Tree:
            live = by_slot[part.slot]
            return forced(part.root_id, live) if live.replay else free(part)

        self.ring.drafter.draft = choose

    def cycle(self, slab: list[Live], rng: random.Random) -> None:
        """Run one round of some sequences."""
        self.draft(rng)
        self.ring.cycle(*(live.ref.slot for live in slab))
        for live in slab:
            live.replay = live.replay[len(live.row.previous) :]

    def release(self, live: Live) -> None:
        """End a sequence, at whatever point it is."""
        body = pb.stage_pb2.Release(slot=live.ref.slot, generation=live.ref.generation)
        self.ring.ask(StageMessage(release=body))
        self.forget(live)

    def forget(self, live: Live) -> None:
        """Take a sequence's slot and pages back."""
        self.live.remove(live)
        self.released.append(live)
        self.slots.free(live.ref)
        self.pages.free(live.pages)

    def _admission(self, live: Live) -> pb.stage_pb2.Admit:
        return pb.stage_pb2.Admit(
            request_id=f"p{live.ref.slot}",
            choice_index=0,
            slot=live.ref.slot,
            generation=live.ref.generation,
            prompt_length=len(live.truth.prompt),
            sampling=sampling_to_proto(live.truth.sampling),
            budget=budget_to_proto(BUDGET),
            drafting=drafting_to_proto(Drafting()),
            wants_digest=False,
        )


def forced(root: int, live: Live) -> Tree:
    """Return the chain that re-materialises the next tokens of a sequence that resumes."""
    tokens = live.replay[: min(MAX_DEPTH, len(live.replay) - 1)]
    count = len(tokens)
    sources = (int(NodeSource.ROOT),) + (int(NodeSource.FORCED),) * count
    return Tree(tuple(range(-1, count)), (root, *tokens), sources, (0.0,) * (count + 1))
