"""Words and paths of slots, as the walk leaves them."""

import torch

from services.kernels.state_words import (
    CYCLE,
    EPOCH,
    LENGTH,
    PATH_CYCLE,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_NODES,
)


def make_words(slots: int, epoch: int = 1, cycle: int = 0, length: int = 0) -> torch.Tensor:
    """Return words [slots, 16] with set 0 active."""
    words = torch.zeros(slots, 16, dtype=torch.int32)
    words[:, EPOCH], words[:, CYCLE], words[:, LENGTH] = epoch, cycle, length
    return words


def make_paths(words: torch.Tensor, nodes: list[list[int]]) -> torch.Tensor:
    """Return paths [slots, 64] of the slots' own epoch and cycle."""
    path = torch.zeros(len(nodes), 64, dtype=torch.int32)
    path[:, PATH_EPOCH], path[:, PATH_CYCLE] = words[:, EPOCH], words[:, CYCLE]
    for row, own in zip(path, nodes, strict=True):
        row[PATH_NUM_NODES] = len(own)
        row[PATH_NODES : PATH_NODES + len(own)] = torch.tensor(own, dtype=torch.int32)
    return path
