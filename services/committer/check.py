"""What makes a path foreign to its slot: another epoch, cycle, tree, or root."""

from __future__ import annotations

from services.contract import pb
from services.contract.errors import InvalidField, RepeatedCycleError, StaleEpochError
from services.contract.limits import MAX_PATH
from services.kernels.state_words import (
    CYCLE,
    EPOCH,
    LENGTH,
    PATH_CYCLE,
    PATH_EMITTED,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_EMITTED,
    PATH_NUM_NODES,
    PATH_PENDING,
)

NO_ROOT = -1


def refuse_foreign(
    path: list[int], words: list[int], tree: pb.tree_pb2.TreeDescriptor, root: int
) -> None:
    """Raise the contract's error unless a path continues its slot's words.

    Args    path: words of the cut path. root: token left pending, NO_ROOT before the first
            cycle of a sequence.
    """
    if not path[PATH_EPOCH] == words[EPOCH] == tree.epoch:
        text = f"the path is of epoch {path[PATH_EPOCH]}, the slot of {words[EPOCH]}"
        raise StaleEpochError("PUBLICATION", text + "; nothing was published", "epoch")
    if not path[PATH_CYCLE] == words[CYCLE] == tree.cycle:
        text = f"the path is of cycle {path[PATH_CYCLE]}, the slot's next is {words[CYCLE]}"
        raise RepeatedCycleError("PUBLICATION", text + "; nothing was published", "cycle")
    if tree.committed_length != words[LENGTH] or not _is_root_path(path, tree):
        text = "the path is not a root path of the cycle's tree; nothing was published"
        raise InvalidField("PUBLICATION", text, "nodes")
    if root not in (NO_ROOT, tree.token_ids[0]):
        text = "the tree's root is not the pending token; nothing was published"
        raise InvalidField("PUBLICATION", text, "token_ids")


def _is_root_path(path: list[int], tree: pb.tree_pb2.TreeDescriptor) -> bool:
    count, live = path[PATH_NUM_NODES], tree.active_count
    if not 1 <= count <= MAX_PATH or path[PATH_NUM_EMITTED] != count:
        return False
    nodes = path[PATH_NODES : PATH_NODES + count]
    emitted = path[PATH_EMITTED : PATH_EMITTED + count]
    if nodes[0] != 0 or emitted[-1] != path[PATH_PENDING]:
        return False
    parents, tokens = tree.parents, tree.token_ids
    return all(
        0 < node < live and parents[node] == parent and tokens[node] == token
        for parent, node, token in zip(nodes, nodes[1:], emitted, strict=False)
    )
