"""A replay's arms: what a variant replaces is there, and an arm that dies is said, not hidden."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from typing import Any

import pytest

from benchmarks.replay.arms import ARMS, Arm, Change, named
from benchmarks.replay.corpus import CorpusRequest
from benchmarks.replay.figures import ratio
from benchmarks.replay.outcome import make_report
from benchmarks.replay.process import ArmEnded, ArmProcess
from benchmarks.replay.run import Outcome, Plan, replay
from benchmarks.replay.worker import replace_names
from services.drafter import shape

_CHANGES = [change for arm in ARMS.values() for change in arm.changes]
_REQUESTS = [CorpusRequest("c", f"r{index}", "t", (1, 2, 3)) for index in range(3)]


class _Answers:
    """An arm that says one token more each time, and ends at answer `dies_at`."""

    def __init__(self, name: str, dies_at: int = -1) -> None:
        self.arm = ARMS[name]
        self.asked: list[dict[str, Any]] = []
        self._dies_at = dies_at

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        if len(self.asked) == self._dies_at:
            raise ArmEnded("ended with status -6: free(): invalid pointer")
        ids = list(range(len(self.asked) + 1))
        return {"token_ids": ids, "prompt_tokens": 3, "decode_ms": 10.0}


@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: change.place)
def test_what_a_variant_replaces_is_there_and_differs(change: Change) -> None:
    module, _, path = change.place.partition(":")
    assert reduce(getattr, path.split("."), import_module(module)) != change.value


def test_a_replaced_name_is_what_the_engine_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "DEFAULT_DEPTH", shape.DEFAULT_DEPTH)
    shape.parse_shape.cache_clear()
    replace_names(ARMS["hydra27-3-passes"].changes)
    assert shape.parse_shape("hydra27").num_passes == 3
    shape.parse_shape.cache_clear()


def test_a_name_that_is_gone_is_refused() -> None:
    with pytest.raises(AttributeError, match="NO_SUCH"):
        replace_names([Change("services.drafter.shape:NO_SUCH", 1)])


def test_groups_and_arms_are_named_once() -> None:
    assert named("plain,hydra27,plain") == ("plain", "hydra27")
    assert set(named("all")) == set(ARMS)
    with pytest.raises(KeyError):
        named("chain-6")


def test_a_process_that_ends_says_its_last_words() -> None:
    with pytest.raises(ArmEnded, match=r"status 1: .*benchmarks\.replay\.none"):
        ArmProcess(Arm("none", worker="benchmarks.replay.none"), {})


@pytest.mark.parametrize("seed", [7, None])
def test_the_rest_goes_on_where_an_arm_ends(seed: int | None) -> None:
    arms, outcome = [_Answers("plain"), _Answers("vllm-mtp-5", 2)], Outcome()
    replay(arms, _REQUESTS, Plan(8, 1, seed), outcome, lambda arm, request: None)
    report = make_report(outcome, {})
    assert report["is_complete"]
    assert list(report["failures"]) == ["vllm-mtp-5"]
    assert "free(): invalid pointer (at r1, repeat 0)" in report["failures"]["vllm-mtp-5"]
    assert [len(arm.asked) for arm in arms] == [3, 2]
    assert report["figures"]["all"]["vllm-mtp-5"]["requests"] == 1
    assert arms[0].asked[0]["sampling"].get("seed") == seed


def test_a_ratio_takes_the_requests_that_both_arms_answered() -> None:
    records = [
        {"arm": "a", "request": "r0", "tokens": 11, "decode_ms": 10.0},
        {"arm": "b", "request": "r0", "tokens": 11, "decode_ms": 20.0},
        {"arm": "b", "request": "r1", "tokens": 11, "decode_ms": 1.0},
    ]
    found = ratio(records, "a", "b")
    assert found["ratio"] == pytest.approx(2.0)
    assert found["interval_95"] == pytest.approx([2.0, 2.0])
