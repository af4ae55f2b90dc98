"""N3 and resume: the same tokens as plain decoding, and a live sequence rebuilt from its tokens."""

import random
from pathlib import Path

import pytest

from services.contract import pb
from services.contract.limits import MAX_DEPTH
from services.contract.sampling import Budget, SamplingParams
from services.contract.topology import NodeSource
from services.contract.tree import Tree
from tests.drafts import KnownDraft
from tests.ring import Ring, root_only

SAMPLED = SamplingParams(temperature=1.1, top_p=0.97, frequency_penalty=0.4, seed=77)
BUDGET = Budget(1100, context_length=1280)


def plain_tokens(ring: Ring, prompt: list[int], count: int, sampling: SamplingParams) -> list[int]:
    ring.drafter.draft = root_only
    row = ring.start(0, prompt, sampling, BUDGET)
    while len(row.emitted) < count:
        ring.cycle(0)
    ring.release(0)
    return row.emitted


def differing_tokens(ring: Ring, seed: int, count: int, sampling: SamplingParams) -> int:
    """Return how many of `count` tokens tree decoding emits otherwise, over every pattern."""
    rng = random.Random(seed)
    prompt = [rng.randrange(150) for _ in range(rng.choice((1, 2, 3, 17, 63, 64, 65, 129)))]
    truth = plain_tokens(ring, prompt, count + 16, sampling)
    row = ring.start(0, prompt, sampling, BUDGET)
    patterns = ("root", "rejected", "chain", "full", "mixed", "mixed")
    ring.drafter.draft = KnownDraft(ring, {0: truth}, rng, patterns)
    cycles = 0
    while len(row.emitted) < count:
        ring.cycle(0)
        cycles += 1
    ring.release(0)
    assert cycles < count / 2, "the schedule must accept drafts"
    return sum(a != b for a, b in zip(row.emitted[:count], truth, strict=False))


@pytest.fixture(scope="module")
def ring(tiny: Path) -> Ring:
    return Ring(tiny, slots=2, context=1280, poison=True)


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
def test_no_token_differs(ring: Ring, seed: int, sampling: SamplingParams) -> None:
    assert differing_tokens(ring, seed, 300, sampling) == 0


@pytest.mark.slow
@pytest.mark.parametrize("index", range(20))
def test_no_token_of_twenty_thousand_differs(ring: Ring, seed: int, index: int) -> None:
    assert differing_tokens(ring, seed + index, 1000, SamplingParams()) == 0


def test_a_kept_reject_is_noticed(ring: Ring, seed: int) -> None:
    """The inverse control: a walk that takes a wrong child once changes the tokens."""
    rng = random.Random(seed)
    prompt = [rng.randrange(150) for _ in range(9)]
    truth = plain_tokens(ring, prompt, 60, SamplingParams())
    row = ring.start(0, prompt, SamplingParams(), BUDGET)

    def wrong(part: pb.stage_pb2.CycleSequence) -> Tree:
        sources = (int(NodeSource.ROOT), int(NodeSource.FORCED))
        token = (truth[len(row.emitted)] + 1) % 150
        return Tree((-1, 0), (part.root_id, token), sources, (0.0, 0.0))

    ring.drafter.draft = wrong
    ring.cycle(0)
    ring.drafter.draft = root_only
    for _ in range(20):
        ring.cycle(0)
    ring.release(0)
    assert row.emitted[:20] != truth[:20]


def forced(tokens: list[int], root: int) -> Tree:
    count = len(tokens)
    sources = (int(NodeSource.ROOT),) + (int(NodeSource.FORCED),) * count
    return Tree(tuple(range(-1, count)), (root, *tokens), sources, (0.0,) * (count + 1))


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("count", [1, 15, 16, 37])
def test_forced_chains_rebuild_a_live_sequence(
    ring: Ring, seed: int, sampling: SamplingParams, count: int
) -> None:
    rng = random.Random(seed)
    prompt = [rng.randrange(150) for _ in range(30)]
    truth = plain_tokens(ring, prompt, 80, sampling)
    live = ring.start(0, prompt, sampling, BUDGET)
    ring.drafter.draft = root_only
    while len(live.emitted) < count:
        ring.cycle(0)
    again = ring.start(1, prompt, sampling, BUDGET)

    def rest(part: pb.stage_pb2.CycleSequence) -> Tree:
        done = len(again.emitted)
        return forced(truth[done : min(done + MAX_DEPTH, count - 1)], part.root_id)

    ring.drafter.draft = rest
    while len(again.emitted) < count:
        ring.cycle(1)
    assert again.emitted == live.emitted == truth[:count]
    assert ring.digest(1) == ring.digest(0)
    ring.drafter.draft = root_only
    for _ in range(10):
        ring.cycle(0, 1)
    assert again.emitted == live.emitted == truth[: count + 10]
    for slot in (0, 1):
        ring.release(slot)
