"""Publications that the state's owner launches on the committer's order leave plain bits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from services.committer.stage import CommitterStage
from services.model.checkpoint import Checkpoint
from services.model.weights import load_target
from services.runtime import moves
from services.runtime.orders import Publisher
from tests.conftest import BASE_SEED
from tests.drafts import KnownDraft, plain_run
from tests.ring import EPOCH, Ring

TOKENS = 60
PATTERNS = ("mixed", "full", "chain", "rejected")


class Ordered:
    """A ring whose committer orders, and the digests of plain decoding."""

    def __init__(self, tiny: Path) -> None:
        rng = random.Random(BASE_SEED)
        prompt = [rng.randrange(150) for _ in range(21)]
        plain = Ring(tiny)
        self.digests = plain_run(plain, prompt, TOKENS + 20)
        ring = self.ring = Ring(tiny, poison=True)
        weights = load_target(Checkpoint.open(tiny), torch.float32)
        ring.committer = CommitterStage(weights, ring.arenas, ring.config, EPOCH, is_ordered=True)
        ring.committer.order = Publisher(weights, ring.arenas).publish
        ring.group.stages = (ring.drafter, ring.verifier, ring.committer)
        ring.start(0, prompt)
        truth = {0: plain.rows[0].emitted}
        ring.drafter.draft = KnownDraft(ring, truth, random.Random(1), PATTERNS)

    @property
    def is_plain(self) -> bool:
        """Whether the state is that of plain decoding."""
        return self.ring.digest(0) == self.digests[self.ring.rows[0].length]


@pytest.fixture
def ordered(tiny: Path) -> Ordered:
    return Ordered(tiny)


def test_publications_by_order_leave_plain_bits(ordered: Ordered) -> None:
    while len(ordered.ring.rows[0].emitted) < TOKENS:
        ordered.ring.cycle(0)
        assert ordered.is_plain


@pytest.mark.parametrize("name", ["recurrent_replay", "conv_gather", "kv_scatter"])
def test_an_order_without_one_move_leaves_another_digest(
    ordered: Ordered, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(moves.MOVES, name, lambda job: None)
    ordered.ring.cycle(0)
    assert not ordered.is_plain


def test_an_order_that_is_not_taken_changes_nothing(ordered: Ordered) -> None:
    def hung_up(slots: tuple[int, ...]) -> None:
        raise RuntimeError("hung up")

    ordered.ring.committer.order = hung_up
    before = ordered.ring.digest(0)
    message = ordered.ring.message(0)
    message.epoch, message.sequence_number = EPOCH, ordered.ring.committer.guard.last + 1
    verified = ordered.ring.verifier.step(ordered.ring.drafter.step(message))
    with pytest.raises(RuntimeError, match="hung up"):
        ordered.ring.committer.step(verified)
    assert ordered.ring.digest(0) == before
