"""The tables say exactly what the tree says."""

import random

import numpy as np
import pytest
import torch

from services.contract.limits import MAX_PATH, MAX_ROWS, TABLE_WORDS
from services.contract.topology import Tree
from services.kernels import tree_tables
from services.kernels.cases import HYDRA27, chain_tree, make_tables, make_tree, random_tree
from services.kernels.tree_tables import TableViews


def rows_of(table: torch.Tensor, lengths: torch.Tensor, count: int) -> list[list[int]]:
    """Return the first `count` rows of a table, cut to their lengths."""
    return [table[i, : int(lengths[i])].tolist() for i in range(count)]


def check_paths(tree: Tree, views: TableViews) -> None:
    """Check paths, owners and forks against the tree's own walk."""
    paths = rows_of(views.leaf_paths[0], views.path_length[0], int(views.header[0, 4]))
    inner = set(tree.parents)
    leaves = {n for n in range(tree.num_nodes) if n not in inner}
    assert {path[-1] for path in paths} == leaves and len(paths) == len(leaves)
    assert all(list(tree.path_to(path[-1])) == path for path in paths)
    assert [len(p) for p in paths] == sorted((len(p) for p in paths), reverse=True)
    owned = [n for i, p in enumerate(paths) for n in p[int(views.path_own[0, i]) :]]
    assert sorted(owned) == list(range(tree.num_nodes))
    for node in range(tree.num_nodes):
        assert int(views.path_of[0, node]) == min(i for i, p in enumerate(paths) if node in p)
    trunk = paths[0][: int(views.header[0, tree_tables.TRUNK_LENGTH])]
    for index, path in enumerate(paths):
        fork = int(views.path_fork[0, index])
        assert path[:fork] == trunk[:fork] and not set(path[fork:]) & set(trunk)


def check_chains(tree: Tree, views: TableViews) -> None:
    """Check that chains and leaves together hold each node once."""
    count = int(views.header[0, tree_tables.NUM_CHAINS])
    chains = rows_of(views.chains[0], views.chain_length[0], count)
    owned = [n for i, c in enumerate(chains) for n in c[int(views.chain_own[0, i]) :]]
    leaves = []
    for node in range(tree.num_nodes):
        start, number = int(views.leaf_start[0, node]), int(views.leaf_count[0, node])
        children = views.leaves[0, start : start + number].tolist()
        assert all(tree.parents[child] == node for child in children)
        leaves += children
    assert sorted(owned + leaves) == list(range(tree.num_nodes))
    assert tree.num_nodes == 1 or not set(leaves) & set(tree.parents)


def check_nodes(tree: Tree, views: TableViews) -> None:
    """Check the tables that have one entry a row, padding included."""
    live = tree.num_nodes
    assert views.live[0].tolist() == [1] * live + [0] * (MAX_ROWS - live)
    assert views.parents[0].tolist() == [*tree.parents, *[-1] * (MAX_ROWS - live)]
    assert views.depths[0].tolist() == [*tree.depths, *[0] * (MAX_ROWS - live)]
    assert views.tokens[0].tolist() == [*tree.token_ids, *[0] * (MAX_ROWS - live)]
    for node in range(MAX_ROWS):
        path = tree.path_to(node) if node < live else ()
        assert views.ancestors[0, node].tolist() == [*path, *[-1] * (MAX_PATH - len(path))]


def test_tables_agree_with_random_trees(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        tree = random_tree(rng)
        views = make_tables([tree], [rng.randrange(5000)], [3])
        check_nodes(tree, views)
        check_paths(tree, views)
        check_chains(tree, views)


@pytest.mark.parametrize("count", [1, 2, MAX_PATH])
def test_tables_agree_with_chains(count: int) -> None:
    tree = chain_tree(count)
    views = make_tables([tree], [7], [1])
    check_paths(tree, views)
    check_chains(tree, views)
    assert views.header[0, :7].tolist() == [count, 7, 1, 0, 1, 1, count]


def test_tables_of_the_default_tree_have_its_published_geometry() -> None:
    views = make_tables([make_tree(HYDRA27)], [100], [2])
    assert views.header[0, :7].tolist() == [28, 100, 2, 0, 11, 3, 5]
    assert views.leaf_paths[0, 0, :5].tolist() == [0, 1, 4, 9, 14]
    assert views.chains[0, 0, :11].tolist() == [0, 1, 4, 9, 14, 18, 22, 23, 24, 25, 26]
    assert views.chain_length[0, :3].tolist() == [11, 5, 3]
    assert views.path_length[0, :2].tolist() == [12, 6]


def test_tables_overwrite_whatever_the_block_held() -> None:
    clean, used = np.zeros(TABLE_WORDS, np.int32), np.full(TABLE_WORDS, 77, np.int32)
    for block in (clean, used):
        tree_tables.build_tables(make_tree(HYDRA27), 5, 0, 9, block)
    assert np.array_equal(clean, used)
    assert tree_tables.USED_WORDS <= TABLE_WORDS
