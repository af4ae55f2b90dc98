"""Shape coincidences: every small prompt length, remainder, tree and accepted length."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from benchmarks.proof.check import Check
from benchmarks.proof.faults import spine
from benchmarks.proof.plain import Truth, truth_of
from benchmarks.proof.world import World, cycle_tree, run_eagerly
from services.committer.publish import STEPS
from services.contract import pb
from services.contract.limits import MAX_DEPTH
from services.contract.sampling import Drafting, SamplingParams
from services.contract.topology import NodeSource
from services.contract.tree import Tree
from tests.drafts import KnownDraft
from tests.ring import Ring
from tests.trees import random_parents

FAMILY = "shapes"
GRID, LONGEST = 64, 1024


def run(world: World) -> Iterator[Check]:
    """Yield the checks; each compares tokens and digests with plain decoding."""
    rules = world.rules[FAMILY]
    low, high = rules["prompt_lengths"]
    plain, tree = world.ring(LONGEST, grid=GRID), world.ring(LONGEST, grid=GRID)
    known = Known(world, plain, tree)
    lengths = range(low, high + 1)
    held = sum(known.holds(length) for length in lengths)
    yield Check(FAMILY, "prompt lengths", len(lengths), held, known.notices_a_lost_step())
    wanted = [GRID * k + r for k in (1, 2, 4) for r in rules["remainders"]]
    held = sum(known.holds(length + 1) for length in wanted)
    yield Check(FAMILY, "chunk remainders", len(wanted), held, known.notices_a_lost_step())
    held = sum(known.accepts(count) for count in range(MAX_DEPTH + 1))
    control = not known.accepts(3, wrong=True)
    yield Check(FAMILY, "accepted lengths", MAX_DEPTH + 1, held, control)
    yield trees(world, plain)


class Known:
    """Plain stages and tree stages over one checkpoint, grid and prompt text."""

    def __init__(self, world: World, plain: Ring, tree: Ring) -> None:
        self.world, self.plain, self.tree = world, plain, tree
        self.text = world.prefix(2)
        self.rng = random.Random(world.seed)
        self.count = world.rules[FAMILY]["tokens"]
        run_eagerly(tree)

    def truth(self, length: int, count: int) -> Truth:
        """Decode a prompt of this length plainly."""
        return truth_of(self.plain, self.text[:length], count + 16, SamplingParams())

    def holds(self, length: int) -> bool:
        """Decode with trees of every pattern; say whether tokens and digests are plain."""
        truth, ring = self.truth(length, self.count), self.tree
        row = ring.start(0, truth.prompt)
        ring.drafter.draft = KnownDraft(ring, {0: truth.emitted}, self.rng)
        same = not truth.differing_surfaces(ring)
        while len(row.emitted) < self.count:
            ring.cycle(0)
            same &= not truth.differing_surfaces(ring)
        same &= row.emitted == truth.emitted[: len(row.emitted)]
        ring.release(0)
        return same

    def accepts(self, count: int, wrong: bool = False) -> bool:
        """Draft `count` true tokens and a wrong one; say whether just these are accepted."""
        truth, ring = self.truth(33, 24), self.tree
        row = ring.start(0, truth.prompt)
        ahead = list(truth.emitted[:MAX_DEPTH])
        if count < MAX_DEPTH:
            ahead[count:] = [(ahead[count] + 1) % 150]
        if wrong:
            ahead[0] = (ahead[0] + 1) % 150
        ring.drafter.draft = lambda part: chain(part, ahead)
        _, nodes = cycle_tree(ring)
        same = len(nodes) == count + 1 and not truth.differing_surfaces(ring)
        ring.drafter.draft = lambda part: spine(part, truth.emitted[len(row.emitted) :])
        ring.cycle(0)
        same &= row.emitted == truth.emitted[: len(row.emitted)]
        same &= not truth.differing_surfaces(ring)
        ring.release(0)
        return same

    def notices_a_lost_step(self) -> bool:
        """The inverse control: without the conv gather the digests differ."""
        self.tree.committer.steps["conv_gather"] = lambda job: None
        try:
            return not self.holds(20)
        except AssertionError:
            self.tree.release(0)
            return True
        finally:
            self.tree.committer.steps = dict(STEPS)


def chain(part: pb.stage_pb2.CycleSequence, tokens: list[int]) -> Tree:
    """Return a chain of these tokens below the root."""
    count = len(tokens)
    sources = (int(NodeSource.ROOT),) + (int(NodeSource.TEST),) * count
    return Tree(tuple(range(-1, count)), (part.root_id, *tokens), sources, (0.0,) * (count + 1))


def shapes_of(world: World) -> list[str]:
    """Return named shapes, the extremes and random trees, as a request would name them."""
    rng = random.Random(world.seed)
    made = [[-1], [-1, 0], [-1] + [0] * 31, list(range(-1, 15))]
    made += [[-1] + [i // 2 for i in range(31)]]
    for _ in range(world.rules[FAMILY]["random_trees"]):
        made.append(list(random_parents(rng, rng.randint(2, 32))))
    named = ["root", "chain-1", "chain-5", "chain-15", "hydra27", "adaptive"]
    return named + [json.dumps(parents) for parents in made]


def trees(world: World, plain: Ring) -> Check:
    """Run every shape with the checkpoint's own drafter; compare with plain decoding."""
    count, prompt = world.rules[FAMILY]["tree_tokens"], world.prefix(3)[:150]
    truth = truth_of(plain, prompt, count + 16, SamplingParams())
    ring, held = world.natural_ring(len(prompt)), 0
    run_eagerly(ring)
    shapes = shapes_of(world)
    for shape in shapes:
        held += stays_plain(ring, truth, shape, count)
    ring.committer.steps["conv_gather"] = lambda job: None
    control = not stays_plain(ring, truth, "hydra27", 1)
    ring.committer.steps = dict(STEPS)
    return Check(FAMILY, "tree shapes from JSON", len(shapes), held, control)


def stays_plain(ring: Ring, truth: Truth, shape: str, count: int) -> bool:
    """Decode with one shape; say whether tokens and digests stay those of plain decoding."""
    row = ring.start(0, truth.prompt, drafting=Drafting(shape))
    same = True
    while len(row.emitted) < count:
        ring.cycle(0)
        same &= not truth.differing_surfaces(ring)
    same &= row.emitted == truth.emitted[: len(row.emitted)]
    ring.release(0)
    return same
