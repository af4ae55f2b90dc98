"""Accepted paths: round trips, rules, and agreement with their tree."""

from typing import Any

import pytest

from services.contract import pb
from services.contract.errors import ContractError, StaleEpochError
from services.contract.path import (
    AcceptedPath,
    CutReason,
    EmittedLogprobs,
    TokenLogprob,
    logprobs_from_proto,
    path_from_proto,
    path_to_proto,
)
from services.contract.tree import Tree, TreeTag

TAG = TreeTag("request", 1, 7, 3, 100, 2, 1)
TREE = Tree((-1, 0, 0, 1), (5, 6, 7, 8), (1, 2, 3, 4), (0.0, -0.5, -1.0, -2.0))
PATH = AcceptedPath((0, 1, 3), (6, 8, 9), 9, 103)


@pytest.mark.parametrize("reason", CutReason)
def test_round_trip_gives_the_same_path_and_tag(reason: CutReason) -> None:
    index = -1 if reason is CutReason.NONE else 2
    path = AcceptedPath((0, 1, 3), (6, 8, 9), 9, 103, reason, index)
    data = path_to_proto(path, TAG, b"digest").SerializeToString()
    message = pb.path_pb2.AcceptedPath.FromString(data)
    assert path_from_proto(message, 50, 7) == (path, TAG)
    assert message.digest == b"digest"


def test_logprobs_round_trip_and_are_clamped() -> None:
    chosen = TokenLogprob(6, -0.5)
    values = (EmittedLogprobs(chosen, (chosen, TokenLogprob(7, float("-inf")))),)
    message = path_to_proto(PATH, TAG, logprobs=values)
    assert logprobs_from_proto(message.logprobs, 50) == values
    assert values[0].top[1].logprob == -9999.0
    with pytest.raises(ContractError):
        TokenLogprob(6, float("nan"))
    with pytest.raises(ContractError):
        logprobs_from_proto(message.logprobs, 7)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes": ()}, "PATH_ROOT"),
        ({"nodes": (1, 2, 3)}, "PATH_ROOT"),
        ({"nodes": (0, 3, 1)}, "PATH_ORDER"),
        ({"nodes": (0, 1, 32)}, "OUT_OF_RANGE"),
        ({"nodes": (0, 1)}, "PATH_COUNTS"),
        ({"emitted_ids": (6, 8)}, "PATH_COUNTS"),
        ({"emitted_ids": (6, -8, 9)}, "OUT_OF_RANGE"),
        ({"pending_id": 8}, "PENDING"),
        ({"committed_length": 2}, "OUT_OF_RANGE"),
        ({"cut_index": 2}, "CUT_INDEX"),
        ({"cut_reason": CutReason.EOS}, "CUT_INDEX"),
        ({"cut_reason": CutReason.EOS, "cut_index": 1}, "CUT_INDEX"),
        ({"cut_reason": 9}, "CUT_REASON"),
    ],
)
def test_path_refuses_what_breaks_a_rule(change: dict[str, Any], reason: str) -> None:
    values = {"nodes": (0, 1, 3), "emitted_ids": (6, 8, 9), "pending_id": 9}
    with pytest.raises(ContractError) as caught:
        AcceptedPath(**{"committed_length": 103, **values, **change})
    assert caught.value.reason == reason


def test_path_message_is_refused_when_stale_incomplete_or_unknown() -> None:
    message = path_to_proto(PATH, TAG)
    with pytest.raises(StaleEpochError):
        path_from_proto(message, 50, 8)
    with pytest.raises(ContractError, match="outside"):
        path_from_proto(message, 9, 7)
    message.cut_reason = 77
    with pytest.raises(ContractError, match="not known"):
        path_from_proto(message, 50, 7)
    message.ClearField("cut_reason")
    with pytest.raises(ContractError, match="not set"):
        path_from_proto(message, 50, 7)


def test_path_agrees_with_its_tree() -> None:
    PATH.check_against(TREE, TAG)
    cut = AcceptedPath((0, 1), (6, 8), 8, 102, CutReason.STOP_ID, 1)
    cut.check_against(TREE, TAG)
    assert (PATH.num_accepted_drafts, cut.num_accepted_drafts) == (2, 1)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (AcceptedPath((0, 2, 3), (7, 8, 9), 9, 103), "PATH_NODES"),
        (AcceptedPath((0, 4), (7, 9), 9, 102), "PATH_NODES"),
        (AcceptedPath((0, 1, 3), (6, 7, 9), 9, 103), "PATH_TOKENS"),
        (AcceptedPath((0, 1, 3), (6, 8, 9), 9, 104), "COMMITTED_LENGTH"),
    ],
)
def test_path_of_another_tree_is_refused(path: AcceptedPath, reason: str) -> None:
    with pytest.raises(ContractError) as caught:
        path.check_against(TREE, TAG)
    assert caught.value.reason == reason
