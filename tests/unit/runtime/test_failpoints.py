"""Failpoints: a frozen set, no-ops unless a test armed one."""

from collections.abc import Iterator

import pytest

from services.contract.errors import InvalidField
from services.runtime import failpoints


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def test_points_are_no_ops() -> None:
    for name in failpoints.NAMES:
        failpoints.reach(name)


def test_arming_is_refused_outside_test_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(failpoints.TEST_MODE, raising=False)
    with pytest.raises(InvalidField, match="never set it in service"):
        failpoints.arm_from("committer.flip=raise")


@pytest.mark.parametrize(
    "text",
    ["committer.flop=raise", "committer.flip=boom", "committer.flip", "committer.flip=raise@x"],
)
def test_unknown_points_and_actions_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(failpoints.TEST_MODE, "1")
    with pytest.raises(InvalidField):
        failpoints.arm_from(text)


def test_an_armed_point_fires_at_its_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.TEST_MODE, "1")
    failpoints.arm_from("committer.flip=raise@3,verifier.walk=raise")
    failpoints.reach("committer.flip")
    failpoints.reach("committer.flip")
    with pytest.raises(failpoints.FailpointReached):
        failpoints.reach("committer.flip")
    failpoints.reach("committer.flip")
    with pytest.raises(failpoints.FailpointReached):
        failpoints.reach("verifier.walk")
