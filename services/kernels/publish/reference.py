"""The publication moves in plain torch."""

import torch

from services.contract.limits import PAGE
from services.kernels.state_words import (
    ACTIVE_SET,
    CYCLE,
    EPOCH,
    LENGTH,
    PATH_CYCLE,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_NODES,
)


def current_nodes(words: torch.Tensor, path: torch.Tensor) -> torch.Tensor | None:
    """Return the nodes of a path [64] if it belongs to the slot's words [16], else None."""
    epoch = int(words[EPOCH]) == int(path[PATH_EPOCH])
    count = int(path[PATH_NUM_NODES])
    if not epoch or int(words[CYCLE]) != int(path[PATH_CYCLE]) or count == 0:
        return None
    return path[PATH_NODES : PATH_NODES + count].long()


def conv_gather(
    raw_ring: torch.Tensor,
    conv: torch.Tensor,
    words: torch.Tensor,
    path: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Do what publish.conv_gather says."""
    for slot in slots.tolist():
        nodes = current_nodes(words[slot], path[slot])
        if nodes is not None:
            active = int(words[slot, ACTIVE_SET])
            rows = torch.cat([conv[slot, active], raw_ring[slot][:, nodes]], dim=1)
            conv[slot, 1 - active] = rows[:, -3:]


def kv_scatter(
    kv_ring: torch.Tensor,
    kv: torch.Tensor,
    page_table: torch.Tensor,
    words: torch.Tensor,
    path: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Do what publish.kv_scatter says."""
    for slot in slots.tolist():
        nodes = current_nodes(words[slot], path[slot])
        for index, node in enumerate([] if nodes is None else nodes.tolist()):
            position = int(words[slot, LENGTH]) + index
            page = int(page_table[slot, position // PAGE])
            kv[:, page, :, :, position % PAGE] = kv_ring[slot, :, :, :, node]


def flip(words: torch.Tensor, path: torch.Tensor, slots: torch.Tensor) -> None:
    """Do what publish.flip says."""
    for slot in slots.tolist():
        nodes = current_nodes(words[slot], path[slot])
        if nodes is not None:
            words[slot, ACTIVE_SET] = 1 - words[slot, ACTIVE_SET]
            words[slot, LENGTH] += nodes.numel()
            words[slot, CYCLE] += 1
