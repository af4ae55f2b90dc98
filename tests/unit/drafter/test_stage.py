"""The stage drafts from what was accepted, and a refused message changes nothing."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from services.contract import pb
from services.contract.limits import TABLE_WORDS
from services.contract.tree import NodeSource, Tree, tree_from_proto
from services.kernels.tree_tables import build_tables
from tests.unit.drafter.rig import (
    CONTEXT,
    EPOCH,
    GRID,
    VOCAB,
    DrafterRig,
    FakeHead,
    StageMessage,
    following,
    part,
)

PROMPT = [11, 12, 13, 14, 15]


def tree_of(reply: StageMessage, index: int = 0) -> Tree:
    """Return the checked tree of one sequence of a reply."""
    assert reply.WhichOneof("body") == "cycle", reply.failure
    return tree_from_proto(reply.cycle.sequences[index].tree, VOCAB, EPOCH)[0]


def spine(token: int, count: int) -> list[int]:
    """Return what the stand-in block drafts in a chain after `token`."""
    tokens = []
    for _ in range(count):
        token = following(token)
        tokens.append(token)
    return tokens


def reason(reply: StageMessage) -> str:
    """Return why a message was refused: the error's name and its text."""
    assert reply.WhichOneof("body") == "failure", "was not refused"
    return f"{reply.failure.reason} {reply.failure.message}"


def test_a_chain_follows_the_block() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT, "chain-5")
    tree = tree_of(rig.cycle(part(15, 4)))
    assert tree.token_ids == (15, *spine(15, 5))
    assert tree.parents == (-1, 0, 1, 2, 3, 4)
    assert set(tree.sources[1:]) == {NodeSource.MTP_SPINE}
    assert all(-1.0 < logprob < 0.0 for logprob in tree.draft_logprobs[1:])


def test_hydra_places_runner_ups_beside_the_spine() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT, "hydra27")
    tree = tree_of(rig.cycle(part(15, 4)))
    first = following(15)
    assert tree.token_ids[1:4] == (first, (first + 1) % VOCAB, (first + 2) % VOCAB)
    assert tree.sources.count(NodeSource.MTP_RUNNER_UP) == 10


def test_suffixes_of_the_prompt_fill_the_tail() -> None:
    rig = DrafterRig(None)
    rig.start([*PROMPT, 16, 17, 18, *PROMPT], '{"parents":[-1,0,1,2]}')
    rig.start([*PROMPT, 16, 17, 18, *PROMPT], "adaptive", slot=1)
    reply = rig.cycle(part(15, 12), part(15, 12, slot=1))
    assert tree_of(reply, 0).num_nodes == 1
    adaptive = tree_of(reply, 1)
    assert adaptive.token_ids[:4] == (15, 16, 17, 18)
    assert set(adaptive.sources[1:]) == {NodeSource.SUFFIX_TAIL}


def test_the_first_cycle_drafts_from_the_last_prompt_row() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT)
    rig.cycle(part(15, 4))
    assert rig.head is not None
    tokens, slots, starts, counts, hidden = rig.head.firsts[-1]
    assert (tokens[0], slots, starts, counts) == (15, [0], [3], [1])
    assert hidden[0] == rig.hidden_ring[0, 1, 0, 0]


def test_later_cycles_feed_the_accepted_rows() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT)
    tree = tree_of(rig.cycle(part(15, 4)))
    node = tree.children(tree.children(0)[0])[1]
    path = tree.path_to(node)
    emitted = [*(tree.token_ids[i] for i in path[1:]), 70]
    rig.cycle(part(70, 7, 1, emitted))
    assert rig.head is not None
    tokens, _, starts, counts, hidden = rig.head.firsts[-1]
    assert (tokens[:3], starts, counts) == (emitted, [4], [3])
    assert hidden[:3] == [rig.hidden_ring[0, 0, i, 0].item() for i in path]


def test_prompt_rows_are_stored_when_the_next_message_comes() -> None:
    rig = DrafterRig(FakeHead())
    prompt = [i % VOCAB for i in range(GRID + 3)]
    rig.admit("hydra27", len(prompt))
    assert rig.head is not None
    rig.prefill(prompt)
    assert rig.head.prompts == [(prompt[1 : GRID + 1], 0, 0, GRID)]
    rig.cycle(part(prompt[-1], GRID + 2))
    # The row of the last prompt token but one belongs to the cycle's first pass.
    assert rig.head.prompts[1:] == [(prompt[GRID + 1 : GRID + 2], 0, GRID, 1)]
    assert rig.head.firsts[-1][2] == [GRID + 1]


def test_a_prompt_of_one_token_drafts_nothing_from_the_block() -> None:
    rig = DrafterRig(FakeHead())
    rig.start([9])
    assert tree_of(rig.cycle(part(9, 0))).num_nodes == 1
    assert tree_of(rig.cycle(part(33, 1, 1, [33]))).num_nodes > 1


def test_root_and_test_drafters_leave_the_block_alone() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT, "root")
    rig.start(PROMPT, "hydra27", slot=1, drafter="random")
    reply = rig.cycle(part(15, 4), part(15, 4, slot=1))
    assert tree_of(reply, 0).num_nodes == 1
    assert tree_of(reply, 1).num_nodes == 28
    assert rig.head is not None
    assert rig.head.firsts == rig.head.prompts == []


@pytest.mark.parametrize("shape", ["hydra27", "adaptive"])
def test_forced_tokens_make_a_chain(shape: str) -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT, shape)
    tree = tree_of(rig.cycle(part(15, 4, forced=[21, 22, 23])))
    assert tree.token_ids == (15, 21, 22, 23)
    assert set(tree.sources[1:]) == {NodeSource.FORCED}
    again = tree_of(rig.cycle(part(40, 8, 1, [21, 22, 23, 40])))
    assert again.num_nodes > 1


def test_tables_on_the_device_are_those_of_the_tree() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT, slot=2)
    tree = tree_of(rig.cycle(part(15, 4, slot=2)))
    expected = np.zeros(TABLE_WORDS, np.int32)
    build_tables(tree, 4, 2, 0, expected)
    assert rig.arenas.drafter["tree_tables"][2].numpy().tolist() == expected.tolist()


SHAPES = ["hydra27", "chain-3", "adaptive", "[-1,0,0,1]"]


def test_a_sequence_is_drafted_alike_alone_and_in_a_slab() -> None:
    def run(slots: Sequence[int]) -> dict[int, list[Tree]]:
        rig = DrafterRig(FakeHead())
        found: dict[int, list[Tree]] = {slot: [] for slot in slots}
        for slot in slots:
            rig.start([*PROMPT, slot], SHAPES[slot], slot=slot)
        reply = rig.cycle(*(part(slot, 5, slot=slot) for slot in slots))
        for place, slot in enumerate(slots):
            found[slot].append(tree_of(reply, place))
        parts = []
        for slot in slots:
            first = found[slot][0].token_ids[1]
            parts.append(part(60 + slot, 7, 1, [first, 60 + slot], slot=slot))
        reply = rig.cycle(*parts)
        for place, slot in enumerate(slots):
            found[slot].append(tree_of(reply, place))
        return found

    together = run([0, 1, 2, 3])
    for slot in range(4):
        assert run([slot])[slot] == together[slot]
    assert together[0] != together[1]


def test_drafts_end_where_budget_and_context_end() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT, max_tokens=3)
    assert max(tree_of(rig.cycle(part(15, 4))).depths) == 2
    rig.start([1] * (CONTEXT - 3), slot=1)
    assert max(tree_of(rig.cycle(part(1, CONTEXT - 4, slot=1))).depths) == 2
    assert rig.head is not None
    assert sum(active == [1] for active in rig.head.chained) == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"cycle": 1}, "RepeatedCycleError cycle:"),
        ({"length": 5}, "RepeatedCycleError committed_length:"),
        ({"root": 16}, "InvalidField root_id: not the token"),
        ({"root": VOCAB}, "InvalidField root_id:"),
        ({"generation": 2}, "StaleSlotError generation:"),
        ({"slot": 3}, "StaleSlotError generation:"),
        ({"emitted": [15], "length": 5}, "InvalidField previous_emitted_ids:"),
        ({"forced": [1] * 16}, "InvalidField forced_ids:"),
        ({"forced": [VOCAB]}, "InvalidField forced_ids[0]:"),
    ],
)
def test_a_wrong_cycle_is_refused_and_changes_nothing(
    change: dict[str, object], expected: str
) -> None:
    rig, twin = DrafterRig(FakeHead()), DrafterRig(FakeHead())
    for each in (rig, twin):
        each.start(PROMPT)
    wrong = part(**{"root": 15, "length": 4, **change})
    assert reason(rig.cycle(wrong)).startswith(expected)
    assert tree_of(rig.cycle(part(15, 4))) == tree_of(twin.cycle(part(15, 4)))


def test_one_wrong_part_leaves_the_others_untouched() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT)
    rig.start(PROMPT, slot=1)
    assert reason(rig.cycle(part(15, 4), part(15, 9, slot=1))).startswith("RepeatedCycle")
    assert "each slot once" in reason(rig.cycle(part(15, 4), part(15, 4)))
    assert "each slot once" in reason(rig.cycle())
    assert tree_of(rig.cycle(part(15, 4), part(15, 4, slot=1)), 1).num_nodes > 1


def test_emitted_ids_off_the_tree_are_refused() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT, "chain-2")
    tree = tree_of(rig.cycle(part(15, 4)))
    wrong = [(tree.token_ids[1] + 1) % VOCAB, 50]
    assert reason(rig.cycle(part(50, 6, 1, wrong))).startswith("InvalidField previous_emitted_ids:")
    right = [tree.token_ids[1], 50]
    assert tree_of(rig.cycle(part(50, 6, 1, right))).token_ids[0] == 50


def test_repeated_stale_and_malformed_messages_are_refused() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT)
    number = rig.number
    body = pb.stage_pb2.Cycle(sequences=[part(15, 4)])
    for epoch, sent, expected in (
        (EPOCH, number, "RepeatedCycleError"),
        (EPOCH, number + 2, "RepeatedCycleError"),
        (EPOCH - 1, number + 1, "StaleEpochError"),
    ):
        message = StageMessage(epoch=epoch, sequence_number=sent, cycle=body)
        assert reason(rig.stage.step(message)).startswith(expected)
    assert reason(rig.send()).startswith("InvalidField body:")
    assert reason(rig.admit()).startswith("DuplicateError")
    assert reason(rig.prefill(PROMPT)).startswith("RepeatedCycleError")
    release = pb.stage_pb2.Release(slot=0, generation=2)
    assert reason(rig.send(release=release)).startswith("StaleSlotError")
    assert tree_of(rig.cycle(part(15, 4))).num_nodes > 1


@pytest.mark.parametrize("shape", ["hydra28", "[0]", "chain-16"])
def test_an_unknown_shape_is_refused_at_admission(shape: str) -> None:
    rig = DrafterRig(FakeHead())
    assert reason(rig.admit(shape)).startswith("InvalidField shape:")
    assert rig.admit("hydra27").WhichOneof("body") == "admit"


def test_test_drafters_may_be_switched_off() -> None:
    rig = DrafterRig(FakeHead(), allow_probes=False)
    assert reason(rig.admit(drafter="random")).startswith("PreconditionError drafter:")
    assert rig.admit().WhichOneof("body") == "admit"


def test_released_tokens_help_their_tenant_only_when_kept() -> None:
    def drafted(keep: bool, tenant: str) -> int:
        rig = DrafterRig(None)
        rig.start([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "adaptive", tenant="t")
        rig.send(release=pb.stage_pb2.Release(slot=0, generation=1, keep_suffix=keep))
        rig.start([50, 3, 4, 5], "adaptive", generation=2, tenant=tenant)
        return tree_of(rig.cycle(part(5, 3, generation=2))).num_nodes

    assert drafted(True, "t") > 1
    assert drafted(False, "t") == 1
    assert drafted(True, "other") == 1


def test_a_rewired_stage_forgets_live_sequences() -> None:
    rig = DrafterRig(FakeHead())
    rig.start(PROMPT)
    rig.stage.rewire(EPOCH)
    rig.number = 0
    assert reason(rig.cycle(part(15, 4))).startswith("StaleSlotError")
    rig.start(PROMPT)
    assert tree_of(rig.cycle(part(15, 4))).num_nodes > 1


def test_stats_count_passes_and_nodes() -> None:
    rig = DrafterRig(FakeHead())
    rig.stage.warmup()
    before = rig.stage.stats()
    rig.start(PROMPT, "chain-5")
    rig.cycle(part(15, 4))
    stats = rig.stage.stats()
    assert stats["mtp_passes"] - before["mtp_passes"] == 5
    assert stats["drafted_nodes"] == 5
    json.dumps(stats)
