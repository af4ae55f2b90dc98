"""Trees as values, and each rule of the descriptor by name."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from services.contract import pb
from services.contract.errors import ContractError, StaleEpochError, UnsupportedError
from services.contract.limits import MAX_PATH, MAX_ROWS
from services.contract.topology import NodeSource, Tree
from services.contract.tree import TreeTag, tree_checksum, tree_from_proto, tree_to_proto
from tests.fuzz.reference_rules import COLUMNS, SCALARS, is_valid
from tests.trees import random_tag, random_tree

TAG = TreeTag("request", 0, 7, 3, 100, 2, 1)
SOURCES = tuple(int(x) for x in (NodeSource.ROOT, NodeSource.MTP_SPINE, NodeSource.TEST))


def small() -> Tree:
    return Tree.checked((-1, 0, 0, 1), (5, 6, 7, 8), (1, 2, 3, 4), (0.0, -0.5, -1.0, -2.0), 50)


def chain(num_nodes: int) -> Tree:
    sources = (1, *[2] * (num_nodes - 1))
    ids = tuple(range(num_nodes))
    return Tree(tuple(range(-1, num_nodes - 1)), ids, sources, (0.0,) * num_nodes)


def wide(num_nodes: int) -> Tree:
    parents = (-1, *[0] * (num_nodes - 1))
    sources = (1, *[2] * (num_nodes - 1))
    return Tree(parents, tuple(range(num_nodes)), sources, (0.0,) * num_nodes)


def test_tree_knows_its_paths_children_and_depths() -> None:
    tree = small()
    assert tree.depths == (0, 1, 1, 2)
    assert tree.children(0) == (1, 2)
    assert tree.path_to(3) == (0, 1, 3)
    assert tree.num_nodes == 4
    assert Tree.root_only(9).path_to(0) == (0,)


@pytest.mark.parametrize("node", [-1, 4, True, 1.0])
def test_tree_refuses_a_node_that_it_does_not_have(node: Any) -> None:
    with pytest.raises(ContractError, match="node"):
        small().path_to(node)


@pytest.mark.parametrize("rows", range(1, MAX_ROWS + 1))
def test_round_trip_gives_the_same_tree_and_tag(rows: int) -> None:
    rng = random.Random(rows)
    for _ in range(20):
        tree, tag = random_tree(rng, 4096, rng.randint(1, rows)), random_tag(rng)
        data = tree_to_proto(tree, tag, rows).SerializeToString()
        message = pb.tree_pb2.TreeDescriptor.FromString(data)
        assert is_valid(message, 4096, 7)
        assert tree_from_proto(message, 4096, 7) == (tree, tag)


@pytest.mark.parametrize(
    ("parents", "ids", "sources", "logprobs", "reason"),
    [
        ((), (), (), (), "TREE_SIZE"),
        ((-1, 0), (1,), (1, 2), (0.0, 0.0), "TREE_COLUMN"),
        ((-1, 0), (1, 2), (1,), (0.0, 0.0), "TREE_COLUMN"),
        ((-1, 0), (1, 2), (1, 2), (0.0,), "TREE_COLUMN"),
        ((0, 0), (1, 2), (1, 2), (0.0, 0.0), "TREE_ROOT"),
        ((-1, -1), (1, 2), (1, 2), (0.0, 0.0), "TREE_ROOT"),
        ((-1, 1), (1, 2), (1, 2), (0.0, 0.0), "PARENT_ORDER"),
        ((-1, 2, 0), (1, 2, 3), (1, 2, 2), (0.0, 0.0, 0.0), "PARENT_ORDER"),
        ((-1, -2), (1, 2), (1, 2), (0.0, 0.0), "PARENT_ORDER"),
        ((-1, False), (1, 2), (1, 2), (0.0, 0.0), "NOT_AN_INTEGER"),
        ((-1, 0), (1, 2.0), (1, 2), (0.0, 0.0), "NOT_AN_INTEGER"),
        ((-1, 0), (1, -2), (1, 2), (0.0, 0.0), "TOKEN_OUT_OF_VOCABULARY"),
        ((-1, 0), (1, 2), (2, 2), (0.0, 0.0), "NODE_SOURCE"),
        ((-1, 0), (1, 2), (1, 1), (0.0, 0.0), "NODE_SOURCE"),
        ((-1, 0), (1, 2), (1, 8), (0.0, 0.0), "NODE_SOURCE"),
        ((-1, 0), (1, 2), (1, 0), (0.0, 0.0), "NODE_SOURCE"),
        ((-1, 0), (1, 2), (1, 2), (-0.5, 0.0), "DRAFT_LOGPROB"),
        ((-1, 0), (1, 2), (1, 2), (0.0, 0.5), "DRAFT_LOGPROB"),
        ((-1, 0), (1, 2), (1, 2), (0.0, float("nan")), "DRAFT_LOGPROB"),
        ((-1, 0), (1, 2), (1, 2), (0.0, float("-inf")), "DRAFT_LOGPROB"),
    ],
)
def test_tree_refuses_what_breaks_a_rule(
    parents: Any, ids: Any, sources: Any, logprobs: Any, reason: str
) -> None:
    with pytest.raises(ContractError) as caught:
        Tree(parents, ids, sources, logprobs)
    assert caught.value.reason == reason
    assert caught.value.field


def _set(column: str, row: int, value: Any) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        getattr(message, column)[row] = value

    return change


def _swap_slots(message: Any) -> None:
    message.node_to_slot[:2] = [1, 0]
    message.slot_to_node[:2] = [1, 0]


def _grow(message: Any) -> None:
    message.token_ids.append(0)


def _shrink(message: Any) -> None:
    del message.positions[-1]


RULES: dict[str, tuple[Callable[[Any], None], str]] = {
    "second root": (_set("parents", 2, -1), "TREE_ROOT"),
    "parent after child": (_set("parents", 1, 2), "PARENT_ORDER"),
    "parent is padding": (_set("parents", 3, 9), "PARENT_ORDER"),
    "wrong depth": (_set("depths", 3, 1), "TREE_COLUMN_VALUE"),
    "wrong position": (_set("positions", 3, 101), "TREE_COLUMN_VALUE"),
    "id at vocabulary": (_set("token_ids", 3, 50), "TOKEN_OUT_OF_VOCABULARY"),
    "slot twice": (_set("node_to_slot", 3, 0), "SLOT_BIJECTION"),
    "slot beyond": (_set("node_to_slot", 31, 32), "SLOT_BIJECTION"),
    "not the inverse": (_set("slot_to_node", 3, 0), "SLOT_BIJECTION"),
    "another order": (_swap_slots, "SLOT_ORDER"),
    "live row marked padding": (_set("is_padding", 3, True), "PADDING"),
    "padding row marked live": (_set("is_padding", 4, False), "PADDING"),
    "padding with a parent": (_set("parents", 4, 0), "TREE_COLUMN_VALUE"),
    "padding with a token": (_set("token_ids", 4, 1), "TREE_COLUMN_VALUE"),
    "padding with a source": (_set("sources", 4, 2), "TREE_COLUMN_VALUE"),
    "unknown source": (_set("sources", 3, 99), "NODE_SOURCE"),
    "long column": (_grow, "TREE_COLUMN"),
    "short column": (_shrink, "TREE_COLUMN"),
}


@pytest.mark.parametrize("rule", RULES)
def test_descriptor_that_breaks_a_rule_is_refused(rule: str) -> None:
    change, reason = RULES[rule]
    message = tree_to_proto(small(), TAG)
    change(message)
    columns = [list(getattr(message, name)) for name in COLUMNS]
    if len({len(column) for column in columns}) == 1:
        message.checksum = tree_checksum(columns)
    with pytest.raises(ContractError) as caught:
        tree_from_proto(message, 50, 7)
    assert caught.value.reason == reason


@pytest.mark.parametrize("name", SCALARS)
def test_descriptor_without_a_scalar_is_refused(name: str) -> None:
    message = tree_to_proto(small(), TAG)
    message.ClearField(name)
    with pytest.raises(ContractError) as caught:
        tree_from_proto(message, 50, 7)
    assert (caught.value.reason, caught.value.field) == ("MISSING", name)


def test_descriptor_of_another_epoch_version_or_checksum_is_refused() -> None:
    message = tree_to_proto(small(), TAG)
    with pytest.raises(StaleEpochError):
        tree_from_proto(message, 50, 8)
    message.checksum ^= 1
    with pytest.raises(ContractError, match="CRC-32"):
        tree_from_proto(message, 50, 7)
    message.version = 2
    with pytest.raises(UnsupportedError):
        tree_from_proto(message, 50, 7)


def test_a_valid_descriptor_is_the_control_of_every_refusal() -> None:
    assert tree_from_proto(tree_to_proto(small(), TAG), 50, 7) == (small(), TAG)


def test_path_of_sixteen_nodes_is_the_longest() -> None:
    assert max(chain(MAX_PATH).depths) == MAX_PATH - 1
    with pytest.raises(ContractError, match="17 nodes; limit 16"):
        chain(MAX_PATH + 1)
