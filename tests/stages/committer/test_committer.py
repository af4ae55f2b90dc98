"""The committer behind its socket: right answers, refusals, restart and rewire."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.committer.actor import CommitterHost
from tests.drafts import KnownDraft
from tests.ring import Ring
from tests.stages import checks
from tests.stages.rig import PLACES, StageRig


@pytest.fixture(scope="module", params=PLACES)
def rig(request: pytest.FixtureRequest, tiny: Path, ray_session: None) -> Iterator[StageRig]:
    made = StageRig(tiny, "committer", request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Ring:
    return Ring(tiny)


def test_published_state_is_that_of_plain_decoding(rig: StageRig, plain: Ring, seed: int) -> None:
    checks.runs_as_plain(rig, plain, KnownDraft(rig, {}, random.Random(seed)))


def test_two_slots_of_a_slab_are_published_apart(rig: StageRig, plain: Ring, seed: int) -> None:
    other = rig.start(1, [3, 1, 4, 1, 5])
    checks.runs_as_plain(rig, plain, KnownDraft(rig, {}, random.Random(seed)))
    before = rig.digest(1)
    rig.cycle(1)
    assert rig.digest(1) != before and other.cycle == 1
    rig.release(1)


def test_wrong_messages_are_refused_and_change_nothing(rig: StageRig) -> None:
    checks.refuses_wrong_messages(rig)


def test_wrong_sequences_are_refused_by_name(rig: StageRig) -> None:
    checks.refuses_wrong_sequences(rig)


def test_a_live_stage_is_rewired(rig: StageRig, plain: Ring) -> None:
    checks.rewires_alive(rig, plain)


def test_a_killed_stage_is_restarted_and_rewired(rig: StageRig, plain: Ring) -> None:
    checks.restarts_and_rewires(rig, plain)


def test_control_calls_out_of_order_are_refused() -> None:
    checks.refuses_calls_out_of_order(CommitterHost)
