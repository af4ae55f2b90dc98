"""Random valid trees and tags for tests."""

import random

from services.contract.limits import MAX_PATH, MAX_ROWS
from services.contract.topology import CANDIDATE_SOURCES, NodeSource, Tree
from services.contract.tree import TreeTag

_SOURCES = sorted(CANDIDATE_SOURCES)


def random_parents(rng: random.Random, num_nodes: int) -> tuple[int, ...]:
    """Return parents of a random tree with paths of at most 16 nodes."""
    parents, depths = [-1], [0]
    reach = rng.choice((1, 3, MAX_ROWS))
    while len(parents) < num_nodes:
        parent = rng.randrange(max(0, len(parents) - reach), len(parents))
        while depths[parent] >= MAX_PATH - 1:
            parent = parents[parent]
        parents.append(parent)
        depths.append(depths[parent] + 1)
    return tuple(parents)


def random_tree(rng: random.Random, vocab_size: int, num_nodes: int | None = None) -> Tree:
    """Return a random tree of 1..32 nodes."""
    count = num_nodes or rng.randint(1, MAX_ROWS)
    return Tree.checked(
        random_parents(rng, count),
        tuple(rng.randrange(vocab_size) for _ in range(count)),
        (int(NodeSource.ROOT), *(rng.choice(_SOURCES) for _ in range(count - 1))),
        (0.0, *(-8.0 * rng.random() for _ in range(count - 1))),
        vocab_size,
    )


def random_tag(rng: random.Random, epoch: int = 7) -> TreeTag:
    """Return a random tag of this epoch."""
    return TreeTag(
        request_id=f"request-{rng.randrange(1000)}",
        choice_index=rng.randrange(8),
        epoch=epoch,
        cycle=rng.randrange(1 << 40),
        committed_length=rng.randrange(1 << 18),
        slot=rng.randrange(256),
        generation=rng.randrange(1 << 40),
    )
