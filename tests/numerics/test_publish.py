"""R11 and the five steps: all or nothing, redoable until the flip, cut exactly at the end."""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from services.committer.publish import STEPS, Publication
from services.contract.errors import UnavailableError
from services.contract.path import CutReason
from services.contract.sampling import Budget
from services.contract.tree import Tree, TreeTag, tree_to_proto
from services.kernels.state_words import EPOCH as EPOCH_WORD
from services.kernels.state_words import PATH_CYCLE, PATH_EPOCH, PATH_NODES, PATH_NUM_NODES
from services.runtime.failpoints import TEST_MODE, FailpointReached, arm_from, disarm
from services.runtime.stage import StageMessage
from tests.conftest import BASE_SEED
from tests.drafts import KnownDraft, plain_run
from tests.ring import EPOCH, Ring


@cache
def plain_of(tiny: Path) -> tuple[list[int], list[int], dict[int, bytes]]:
    """Return a prompt, what plain decoding emits after it, and its digests."""
    rng = random.Random(BASE_SEED)
    prompt = [rng.randrange(150) for _ in range(21)]
    plain = Ring(tiny)
    digests = plain_run(plain, prompt, 80)
    return prompt, plain.rows[0].emitted, digests


class Case:
    """A prompt, its plain run, and a ring that drafts the plain continuation."""

    def __init__(self, tiny: Path, budget: Budget | None = None) -> None:
        self.prompt, self.truth, self.digests = plain_of(tiny)
        self.ring = Ring(tiny, poison=True)
        self.ring.start(0, self.prompt, budget=budget)
        self.draft("chain")

    def draft(self, *patterns: str) -> None:
        ring = self.ring
        ring.drafter.draft = KnownDraft(ring, {0: self.truth}, random.Random(1), patterns)

    @property
    def is_plain(self) -> bool:
        return self.ring.digest(0) == self.digests[self.ring.rows[0].length]

    def verified(self) -> StageMessage:
        """Run drafter and verifier and return the message that the committer gets."""
        ring = self.ring
        message = ring.message(0)
        message.epoch, message.sequence_number = EPOCH, ring.committer.guard.last + 1
        return ring.verifier.step(ring.drafter.step(message))


@pytest.fixture
def case(tiny: Path) -> Case:
    return Case(tiny)


def everything(case: Case) -> list[torch.Tensor]:
    state = case.ring.arenas.verifier
    return [state[name].clone() for name in ("recurrent", "conv", "kv", "words", "page_table")]


def same(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    pairs = zip(before, after, strict=True)
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)


def older_message_epoch(case: Case, message: StageMessage) -> None:
    message.epoch = EPOCH - 1


def repeated_message(case: Case, message: StageMessage) -> None:
    message.sequence_number -= 1


def older_tree_epoch(case: Case, message: StageMessage) -> None:
    message.cycle.sequences[0].tree.epoch = EPOCH - 1


def older_path_epoch(case: Case, message: StageMessage) -> None:
    case.ring.arenas.verifier["path"][0, PATH_EPOCH] = EPOCH - 1


def older_path_cycle(case: Case, message: StageMessage) -> None:
    case.ring.arenas.verifier["path"][0, PATH_CYCLE] -= 1


def repeated_cycle(case: Case, message: StageMessage) -> None:
    message.cycle.sequences[0].cycle -= 1


def older_generation(case: Case, message: StageMessage) -> None:
    message.cycle.sequences[0].generation -= 1


def other_tree(case: Case, message: StageMessage) -> None:
    part = message.cycle.sequences[0]
    tokens = tuple((token + 1) % 150 for token in part.tree.token_ids[1:4])
    sources = tuple(part.tree.sources[:4])
    tree = Tree((-1, 0, 1, 2), (part.root_id, *tokens), sources, (0.0,) * 4)
    tag = TreeTag("r0", 0, EPOCH, part.cycle, part.committed_length, 0, part.generation)
    part.tree.CopyFrom(tree_to_proto(tree, tag))


def path_too_long(case: Case, message: StageMessage) -> None:
    case.ring.arenas.verifier["path"][0, PATH_NUM_NODES] = 17


def node_off_the_path(case: Case, message: StageMessage) -> None:
    case.ring.arenas.verifier["path"][0, PATH_NODES + 1] = 3


def other_root(case: Case, message: StageMessage) -> None:
    case.ring.arenas.committer["next_root"][0].fill_(151)


REFUSED = (
    older_message_epoch,
    repeated_message,
    older_tree_epoch,
    older_path_epoch,
    older_path_cycle,
    repeated_cycle,
    older_generation,
    other_tree,
    path_too_long,
    node_off_the_path,
    other_root,
)


@pytest.mark.parametrize("spoil", REFUSED, ids=lambda spoil: spoil.__name__)
def test_foreign_publication_changes_nothing(
    case: Case, spoil: Callable[[Case, StageMessage], None]
) -> None:
    case.ring.cycle(0)
    message = case.verified()
    spoil(case, message)
    before = everything(case)
    reply = case.ring.committer.step(message)
    assert reply.WhichOneof("body") == "failure", "the publication was taken"
    assert same(before, everything(case))
    assert case.is_plain


def test_a_publication_is_taken_once(case: Case) -> None:
    case.ring.cycle(0)
    message = case.verified()
    again = StageMessage()
    again.CopyFrom(message)
    assert case.ring.committer.step(message).WhichOneof("body") == "result"
    before = everything(case)
    assert case.ring.committer.step(again).WhichOneof("body") == "failure"
    again.sequence_number += 1
    reply = case.ring.committer.step(again)
    assert reply.WhichOneof("body") == "failure"
    assert same(before, everything(case))


def test_words_of_another_wiring_stop_every_step(case: Case) -> None:
    """What a publication in flight meets when the group was rewired under it."""
    case.ring.cycle(0)
    message = case.verified()
    job = case.ring.committer._publication(message.cycle, (0,))
    STEPS["accept"](job)
    case.ring.arenas.verifier["words"][0, EPOCH_WORD] += 1
    before = everything(case)
    for name in ("recurrent_replay", "conv_gather", "kv_scatter", "next_root", "flip"):
        STEPS[name](job)
    assert same(before, everything(case))


@pytest.mark.parametrize("name", list(STEPS))
def test_publication_broken_before_the_flip_is_nothing_and_redoable(case: Case, name: str) -> None:
    case.ring.cycle(0)
    message = case.verified()
    held = case.ring.digest(0)

    def half_way(job: Publication) -> None:
        if name != "flip":
            STEPS[name](job)
        raise FailpointReached

    case.ring.committer.steps[name] = half_way
    with pytest.raises(FailpointReached):
        case.ring.committer.cycle(message)
    assert case.ring.digest(0) == held
    case.ring.committer.steps = dict(STEPS)
    reply = case.ring.committer.cycle(message)
    path = reply.result.sequences[0].path
    assert case.ring.digest(0) == case.digests[path.committed_length]
    assert path.digest == case.digests[path.committed_length]


@pytest.mark.parametrize("name", [f"committer.{step}" for step in STEPS])
def test_stage_death_at_a_failpoint_loses_nothing_published(
    case: Case, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_MODE, "1")
    case.ring.cycle(0)
    held = case.ring.digest(0)
    arm_from(f"{name}=raise")
    try:
        with pytest.raises(UnavailableError):
            case.ring.group.send(case.ring.message(0))
    finally:
        disarm()
    assert case.ring.digest(0) == held
    assert not all(case.ring.group.health().values())
    with pytest.raises(UnavailableError):
        case.ring.group.send(case.ring.message(0))


def cut_case(tiny: Path, index: int, kind: str) -> tuple[Case, CutReason]:
    token = plain_of(tiny)[1][index]
    budgets = {
        "eos": (Budget(64, 0, (token,), (), 512), CutReason.EOS),
        "stop_id": (Budget(64, 0, (), (token,), 512), CutReason.STOP_ID),
        "both": (Budget(index + 1, 0, (token,), (token,), 512), CutReason.EOS),
        "budget": (Budget(index + 1, 0, (), (), 512), CutReason.BUDGET),
        "context": (Budget(64, 0, (), (), 21 + index + 1), CutReason.CONTEXT),
    }
    budget, reason = budgets[kind]
    return Case(tiny, budget), reason


@pytest.mark.parametrize("kind", ["eos", "stop_id", "both", "budget", "context"])
@pytest.mark.parametrize("index", [0, 1, 7, 14, 15, 16, 20])
def test_accepted_run_is_cut_exactly_at_its_end(tiny: Path, index: int, kind: str) -> None:
    case, reason = cut_case(tiny, index, kind)
    wanted = case.truth[: case.truth.index(case.truth[index]) + 1]
    if kind in ("budget", "context"):
        wanted = case.truth[: index + 1]
    path = case.ring.cycle(0)[0].path
    while path.cut_reason == CutReason.NONE:
        path = case.ring.cycle(0)[0].path
    assert case.ring.rows[0].emitted == wanted
    assert path.cut_reason == reason
    assert path.cut_index == len(path.emitted_ids) - 1
    assert len(path.nodes) == len(path.emitted_ids)
    assert case.is_plain


def test_each_step_alone_leaves_another_digest(case: Case) -> None:
    """The inverse control: without any one of the steps the digest differs."""
    for name in ("recurrent_replay", "conv_gather", "kv_scatter"):
        case.ring.committer.steps = {**STEPS, name: lambda job: None}
        case.ring.cycle(0)
        assert not case.is_plain, name
        case.ring.release(0)
        case.ring.arenas.verifier["kv"].fill_(torch.nan)
        case.ring.start(0, case.prompt)
