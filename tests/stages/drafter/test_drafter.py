"""The drafter behind its socket: right answers, refusals, restart and rewire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.contract.tree import tree_from_proto
from services.drafter.actor import DrafterHost
from tests.ring import Ring
from tests.stages import checks
from tests.stages.rig import PLACES, StageRig


@pytest.fixture(scope="module", params=PLACES)
def rig(request: pytest.FixtureRequest, tiny: Path, ray_session: None) -> Iterator[StageRig]:
    made = StageRig(tiny, "drafter", request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Ring:
    return Ring(tiny)


def test_drafts_do_not_change_the_text(rig: StageRig, plain: Ring) -> None:
    checks.runs_as_plain(rig, plain)


def test_trees_are_valid_and_start_at_the_pending_token(rig: StageRig) -> None:
    row = rig.start(1, checks.PROMPT)
    sizes = []
    for _ in range(6):
        root, length = row.root, row.length
        (result,) = rig.cycle(1)
        tree, tag = tree_from_proto(result.tree, rig.model.vocab_size, rig.group.epoch)
        assert (tree.token_ids[0], tag.committed_length) == (root, length)
        sizes.append(tree.num_nodes)
    rig.release(1)
    assert max(sizes) > 1


def test_both_places_draft_the_same_trees(tiny: Path, rig: StageRig) -> None:
    here = StageRig(tiny, "drafter", "inproc")
    try:
        drafted = []
        for each in (here, rig):
            each.start(1, checks.PROMPT)
            drafted.append([each.cycle(1)[0].tree for _ in range(5)])
            each.release(1)
        trees = [[(list(t.parents), list(t.token_ids)) for t in trees] for trees in drafted]
        assert trees[0] == trees[1]
    finally:
        here.close()


def test_wrong_messages_are_refused_and_change_nothing(rig: StageRig) -> None:
    checks.refuses_wrong_messages(rig)


def test_wrong_sequences_are_refused_by_name(rig: StageRig) -> None:
    checks.refuses_wrong_sequences(rig)


def test_a_live_stage_is_rewired(rig: StageRig, plain: Ring) -> None:
    checks.rewires_alive(rig, plain)


def test_a_killed_stage_is_restarted_and_rewired(rig: StageRig, plain: Ring) -> None:
    checks.restarts_and_rewires(rig, plain)


def test_control_calls_out_of_order_are_refused() -> None:
    checks.refuses_calls_out_of_order(DrafterHost)
