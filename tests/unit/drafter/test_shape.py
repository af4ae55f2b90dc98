"""Shapes are the published geometry, chains, or checked JSON; nothing else."""

import hashlib
import json
import random

import pytest

from services.contract.errors import InvalidField
from services.contract.limits import MAX_DEPTH, MAX_PATH, MAX_ROWS
from services.contract.shape import checked_parents
from services.contract.tree import NodeSource
from services.drafter.shape import (
    ADAPTIVE_RANKS,
    HYDRA32_INACTIVE,
    HYDRA32_PARENTS,
    hydra27_parents,
    parse_shape,
)

PARENTS_SHA256 = "7abd25e38323d6c088eb627785b5c190b2e878b0a710bb349e2d690852a06ddd"


def depths_of(parents: tuple[int, ...]) -> list[int]:
    """Return the depth of each node."""
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return depths


def test_hydra_parents_are_the_published_ones() -> None:
    text = json.dumps(HYDRA32_PARENTS, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == PARENTS_SHA256


def test_swapped_hydra_parents_are_noticed() -> None:
    swapped = [*HYDRA32_PARENTS[:-2], HYDRA32_PARENTS[-1], HYDRA32_PARENTS[-2]]
    text = json.dumps(swapped, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() != PARENTS_SHA256


def test_hydra27_has_the_published_depths_and_leaves() -> None:
    parents = hydra27_parents()
    depths = depths_of(parents)
    assert len(parents) == MAX_ROWS - len(HYDRA32_INACTIVE) == 28
    assert [depths.count(d) for d in range(12)] == [1, 3, 5, 5, 4, 4, 1, 1, 1, 1, 1, 1]
    assert len(set(range(28)) - set(parents)) == 11


def test_hydra27_sources_are_those_of_the_paper() -> None:
    shape = parse_shape("hydra27")
    counts = {source: shape.sources.count(source) for source in set(shape.sources)}
    assert counts == {
        NodeSource.ROOT: 1,
        NodeSource.MTP_SPINE: 5,
        NodeSource.MTP_RUNNER_UP: 10,
        NodeSource.SUFFIX_RESCUE: 6,
        NodeSource.SUFFIX_TAIL: 6,
    }
    assert (shape.num_passes, shape.num_ranks) == (5, 3)


@pytest.mark.parametrize("length", range(1, MAX_DEPTH + 1))
def test_chain_is_a_path_of_its_length(length: int) -> None:
    shape = parse_shape(f"chain-{length}")
    assert shape.parents == tuple(range(-1, length))
    assert set(shape.sources[1:]) == {NodeSource.MTP_SPINE}
    assert (shape.num_passes, shape.num_ranks) == (length, 1)


def test_root_has_no_candidate_and_no_pass() -> None:
    shape = parse_shape("root")
    assert (shape.num_nodes, shape.num_passes, shape.num_ranks) == (1, 0, 0)


@pytest.mark.parametrize("text", ["[-1,0,0,1]", '{"parents": [-1, 0, 0, 1]}'])
def test_json_parents_are_taken_in_both_forms(text: str) -> None:
    shape = parse_shape(text)
    spine, beside = NodeSource.MTP_SPINE, NodeSource.MTP_RUNNER_UP
    assert shape.parents == (-1, 0, 0, 1)
    assert shape.sources == (NodeSource.ROOT, spine, beside, spine)


def test_json_nodes_deeper_than_the_passes_are_suffix_nodes() -> None:
    shape = parse_shape(json.dumps(list(range(-1, 10))))
    assert shape.sources[6:] == (NodeSource.SUFFIX_TAIL,) * 5
    assert shape.num_passes == 5


def test_nodes_below_a_runner_up_are_rescues() -> None:
    shape = parse_shape("[-1,0,0,2,3]")
    assert shape.sources[3:] == (NodeSource.SUFFIX_RESCUE,) * 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hydra28",
        "chain-0",
        "chain-16",
        "chain--1",
        "chain-²",
        "chain-" + "9" * 400,
        "adaptive-0",
        "[]",
        "[0]",
        "[-1,1]",
        "[-1,-1]",
        "[-1,0.0]",
        "[-1,true]",
        "[-1,[0]]",
        "[-1,0",
        '{"parents":[-1],"x":1}',
        '{"parent":[-1]}',
        "[" * 500,
        json.dumps([-1] + [0] * MAX_ROWS),
        json.dumps(list(range(-1, MAX_PATH))),
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_shape(text)
    assert caught.value.field == "shape"


def test_the_largest_trees_are_taken() -> None:
    assert len(checked_parents([-1] + [0] * (MAX_ROWS - 1))) == MAX_ROWS
    assert len(checked_parents(list(range(-1, MAX_PATH - 1)))) == MAX_PATH


def test_random_json_trees_keep_their_parents() -> None:
    rng = random.Random(5)
    for _ in range(200):
        parents = [-1]
        while len(parents) < rng.randint(1, MAX_ROWS):
            parents.append(rng.randrange(len(parents)))
        if max(depths_of(tuple(parents))) > MAX_DEPTH:
            continue
        shape = parse_shape(json.dumps(parents))
        assert shape.parents == tuple(parents)
        assert shape.num_passes <= 5


def test_adaptive_asks_for_its_ranks() -> None:
    assert parse_shape("adaptive").num_ranks == ADAPTIVE_RANKS
    assert parse_shape("adaptive-8").num_passes == 8
