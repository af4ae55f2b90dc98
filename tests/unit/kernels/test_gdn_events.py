"""The one-pass schedule: every node once, each from its parent's state, within the table."""

import random

import pytest
import torch

from services.contract.topology import Tree
from services.kernels.cases import HYDRA27, make_tables, make_tree, random_tree
from services.kernels.tree_tables import (
    EVENT_EMIT,
    EVENT_LEAF,
    EVENT_RUN,
    GDN_LANES,
    LANE_EVENTS,
)


def lanes(tree: Tree) -> list[list[int]]:
    """Return the event words of every lane."""
    tables = make_tables([tree], [100], [0])
    counts = tables.event_count[0].tolist()
    return [tables.events[0, lane, : counts[lane]].tolist() for lane in range(GDN_LANES)]


def replayed(words: list[int]) -> list[tuple[int, int]]:
    """Return (node, node whose state it starts from; -1 the slot's) of every emission."""
    emitted, state, left = [], -1, 0
    for word in words:
        node = word & 31
        if left == 0:
            left, state = word >> EVENT_RUN, -1
        if word & EVENT_EMIT:
            emitted.append((node, state))
        if not word & EVENT_LEAF:
            state = node
        left -= 1
    assert left == 0
    return emitted


def test_every_node_is_emitted_once_from_its_parents_state(seed: int) -> None:
    rng = random.Random(seed)
    for tree in [make_tree(HYDRA27), Tree.root_only(1), *(random_tree(rng) for _ in range(300))]:
        emitted = sorted(pair for words in lanes(tree) for pair in replayed(words))
        assert emitted == list(enumerate(tree.parents))


def test_widest_schedules_fit_their_lanes() -> None:
    combs = []
    for trunk in range(1, 15):
        parents = list(range(-1, trunk - 1))
        while len(parents) + 2 <= 32:
            parents += [trunk - 1, len(parents)]
        combs.append(make_tree(tuple(parents)))
    longest = max(len(words) for tree in combs for words in lanes(tree))
    assert 64 < longest <= LANE_EVENTS


@pytest.mark.parametrize("flag", [EVENT_LEAF, EVENT_EMIT])
def test_a_flipped_flag_is_noticed(flag: int) -> None:
    words = torch.tensor(lanes(make_tree(HYDRA27))[0])
    words[1] ^= flag
    assert replayed(words.tolist()) != replayed(lanes(make_tree(HYDRA27))[0])
