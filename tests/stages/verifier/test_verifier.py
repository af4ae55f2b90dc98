"""The verifier behind its socket: right answers, refusals, restart and rewire."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.verifier.actor import VerifierHost
from tests.drafts import KnownDraft
from tests.oracle.decoder import PlainDecoder
from tests.ring import Ring
from tests.stages import checks
from tests.stages.rig import PLACES, StageRig


@pytest.fixture(scope="module", params=PLACES)
def rig(request: pytest.FixtureRequest, tiny: Path, ray_session: None) -> Iterator[StageRig]:
    made = StageRig(tiny, "verifier", request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Ring:
    return Ring(tiny)


def test_paths_of_trees_are_the_tokens_of_plain_decoding(
    rig: StageRig, plain: Ring, seed: int
) -> None:
    checks.runs_as_plain(rig, plain, KnownDraft(rig, {}, random.Random(seed)))


def test_greedy_tokens_are_the_oracles(rig: StageRig, tiny: Path) -> None:
    row = rig.start(1, checks.PROMPT)
    while len(row.emitted) < 12:
        rig.cycle(1)
    rig.release(1)
    assert row.emitted[:12] == PlainDecoder.from_folder(tiny).greedy(checks.PROMPT, 12)


def test_wrong_messages_are_refused_and_change_nothing(rig: StageRig) -> None:
    checks.refuses_wrong_messages(rig)


def test_wrong_sequences_are_refused_by_name(rig: StageRig) -> None:
    checks.refuses_wrong_sequences(rig)


def test_a_live_stage_is_rewired(rig: StageRig, plain: Ring) -> None:
    checks.rewires_alive(rig, plain)


def test_a_killed_stage_is_restarted_and_rewired(rig: StageRig, plain: Ring) -> None:
    checks.restarts_and_rewires(rig, plain)


def test_control_calls_out_of_order_are_refused() -> None:
    checks.refuses_calls_out_of_order(VerifierHost)
