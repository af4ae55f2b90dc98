"""The check and the cut on host words."""

import torch

from services.contract.limits import MAX_PATH
from services.contract.path import CutReason
from services.kernels.accept import (
    CONTEXT_LENGTH,
    END_LENGTH,
    EOS_IDS,
    NUM_EOS,
    NUM_STOP,
    OTHER_CYCLE,
    OTHER_ROOT,
    OTHER_TREE,
    PATH_STATUS,
    STALE_EPOCH,
    STOP_IDS,
    TAKEN,
    VOCAB_SIZE,
)
from services.kernels.state_words import (
    CYCLE,
    EPOCH,
    LENGTH,
    PATH_CUT_INDEX,
    PATH_CUT_REASON,
    PATH_CYCLE,
    PATH_EMITTED,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_EMITTED,
    PATH_NUM_NODES,
    PATH_PENDING,
)
from services.kernels.tree_tables import COMMITTED_LENGTH, LIVE, PARENTS, SLOT, TOKENS
from services.kernels.tree_tables import CYCLE as TREE_CYCLE

_CYCLE_MASK = 0x7FFFFFFF


def accept(
    words: torch.Tensor,
    path: torch.Tensor,
    limits: torch.Tensor,
    tree_tables: torch.Tensor,
    next_root: torch.Tensor,
    slots: torch.Tensor,
    accepted: torch.Tensor,
) -> None:
    """Do what accept.accept says."""
    for slot in slots.tolist():
        row, state = path[slot].tolist(), words[slot].tolist()
        bounds, root = limits[slot].tolist(), int(next_root[slot])
        table = tree_tables[slot, : PARENTS + 32].tolist()
        status = _status(slot, row, state, bounds, table, root)
        row[PATH_STATUS] = status
        if status == TAKEN:
            _cut(row, state[LENGTH], bounds)
        else:
            row[PATH_EPOCH] = -1
        accepted[slot] = torch.tensor(row, dtype=torch.int32)


def _status(
    slot: int, row: list[int], state: list[int], bounds: list[int], table: list[int], root: int
) -> int:
    if row[PATH_EPOCH] != state[EPOCH]:
        return STALE_EPOCH
    if row[PATH_CYCLE] != state[CYCLE]:
        return OTHER_CYCLE
    named = (table[SLOT], table[TREE_CYCLE], table[COMMITTED_LENGTH])
    if named != (slot, state[CYCLE] & _CYCLE_MASK, state[LENGTH]) or not _is_root_path(row, table):
        return OTHER_TREE
    if not 0 <= row[PATH_PENDING] < bounds[VOCAB_SIZE]:
        return OTHER_TREE
    return TAKEN if root in (-1, table[TOKENS]) else OTHER_ROOT


def _is_root_path(row: list[int], table: list[int]) -> bool:
    count = row[PATH_NUM_NODES]
    if not 1 <= count <= MAX_PATH or row[PATH_NUM_EMITTED] != count:
        return False
    nodes = row[PATH_NODES : PATH_NODES + count]
    emitted = row[PATH_EMITTED : PATH_EMITTED + count]
    if nodes[0] != 0 or emitted[-1] != row[PATH_PENDING]:
        return False
    return all(
        0 < node < table[LIVE] and table[PARENTS + node] == parent and table[TOKENS + node] == token
        for parent, node, token in zip(nodes, nodes[1:], emitted, strict=False)
    )


def _cut(row: list[int], length: int, bounds: list[int]) -> None:
    row[PATH_CUT_REASON], row[PATH_CUT_INDEX] = int(CutReason.NONE), -1
    for index in range(row[PATH_NUM_EMITTED]):
        token = row[PATH_EMITTED + index]
        reason = _end_reason(token, length + index + 1, bounds)
        if reason is not CutReason.NONE:
            row[PATH_CUT_REASON], row[PATH_CUT_INDEX] = int(reason), index
            row[PATH_NUM_NODES] = row[PATH_NUM_EMITTED] = index + 1
            row[PATH_PENDING] = token
            return


def _end_reason(token: int, length: int, bounds: list[int]) -> CutReason:
    """Say why a sequence of `length` materialised tokens ends with `token` pending."""
    if token in bounds[EOS_IDS : EOS_IDS + bounds[NUM_EOS]]:
        return CutReason.EOS
    if token in bounds[STOP_IDS : STOP_IDS + bounds[NUM_STOP]]:
        return CutReason.STOP_ID
    if length >= bounds[END_LENGTH]:
        return CutReason.BUDGET
    if length + 1 >= bounds[CONTEXT_LENGTH]:
        return CutReason.CONTEXT
    return CutReason.NONE
