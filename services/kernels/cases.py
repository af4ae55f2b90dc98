"""Trees for the kernels' tests and measurements."""

import random
from typing import Final

import numpy as np
import torch

from services.contract.limits import MAX_PATH, MAX_ROWS, TABLE_WORDS
from services.contract.topology import NodeSource, Tree
from services.kernels.tree_tables import TableViews, build_tables

# The paper's tree, its padding rows left out and the rest renumbered.
HYDRA27: Final = (
    -1, 0, 0, 0, 1, 1, 1, 2, 3, 4, 4, 4, 7, 8, 9, 9, 9, 12, 14, 14, 14, 17, 18, 22, 23, 24, 25, 26,
)  # fmt: skip


def make_tree(parents: tuple[int, ...]) -> Tree:
    """Return a tree with these parents and made-up tokens."""
    count = len(parents)
    sources = (int(NodeSource.ROOT), *[int(NodeSource.TEST)] * (count - 1))
    return Tree(parents, tuple(range(10, 10 + count)), sources, (0.0,) * count)


def random_tree(rng: random.Random, max_nodes: int = MAX_ROWS) -> Tree:
    """Return a tree of 1 to `max_nodes` nodes, between a chain and a star."""
    count, reach = rng.randint(1, max_nodes), rng.choice((1, 2, 4, 32))
    parents, depths = [-1], [0]
    while len(parents) < count:
        choices = [n for n in range(len(parents)) if depths[n] < MAX_PATH - 1]
        parent = rng.choice(choices[-reach:])
        parents.append(parent)
        depths.append(depths[parent] + 1)
    return make_tree(tuple(parents))


def chain_tree(count: int) -> Tree:
    """Return a chain of `count` nodes."""
    return make_tree(tuple(range(-1, count - 1)))


def make_tables(trees: list[Tree], lengths: list[int], slots: list[int]) -> TableViews:
    """Return the tables of a slab, one sequence a tree."""
    block = np.zeros((len(trees), TABLE_WORDS), np.int32)
    for row, tree, length, slot in zip(block, trees, lengths, slots, strict=True):
        build_tables(tree, length, slot, 0, row)
    return TableViews(torch.from_numpy(block))
