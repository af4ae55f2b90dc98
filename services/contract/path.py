"""The accepted path of one cycle: what was materialised, emitted and left pending."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from services.contract.checks import at_most, require, token_ids, whole
from services.contract.errors import InvalidField, StaleEpochError
from services.contract.limits import MAX_CONTEXT, MAX_PATH, MAX_ROWS, MAX_VOCAB
from services.contract.logprobs import (
    EmittedLogprobs,
    TokenLogprob,
    logprobs_from_proto,
    logprobs_to_proto,
)
from services.contract.tree import Tree, TreeTag

if TYPE_CHECKING:
    from services.contract._pb import path_pb2

__all__ = [
    "AcceptedPath",
    "CutReason",
    "EmittedLogprobs",
    "TokenLogprob",
    "logprobs_from_proto",
    "logprobs_to_proto",
    "path_from_proto",
    "path_to_proto",
]

_FIELDS: Final = (
    "request_id",
    "choice_index",
    "epoch",
    "cycle",
    "slot",
    "generation",
    "pending_id",
    "committed_length",
    "cut_reason",
)


class CutReason(IntEnum):
    """Why a path ends the sequence; numbers equal path.proto's."""

    NONE = 1
    EOS = 2
    STOP_ID = 3
    BUDGET = 4
    CONTEXT = 5


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    """Hold one accepted path after the device cut; an invalid path cannot be made.

    Args    nodes: materialised nodes, root first, ascending, 1..16. emitted_ids: tokens of
            nodes[1:], then the pending token, so as many as nodes. committed_length:
            materialised tokens after publication. cut_index: index in emitted_ids of the
            token that cut the path (always the last), or -1 where nothing cut it.
    """

    nodes: tuple[int, ...]
    emitted_ids: tuple[int, ...]
    pending_id: int
    committed_length: int
    cut_reason: CutReason = CutReason.NONE
    cut_index: int = -1

    def __post_init__(self) -> None:
        _check_nodes(self.nodes)
        token_ids(self.emitted_ids, MAX_VOCAB, MAX_PATH, "emitted_ids")
        whole(self.committed_length, len(self.nodes), MAX_CONTEXT, "committed_length")
        if len(self.emitted_ids) != len(self.nodes):
            message = f"{len(self.emitted_ids)} emitted for {len(self.nodes)} nodes; equal counts"
            raise InvalidField("PATH_COUNTS", message, "emitted_ids")
        if self.pending_id != self.emitted_ids[-1]:
            message = f"{self.pending_id} is not the last emitted id"
            raise InvalidField("PENDING", message, "pending_id")
        _check_cut(self.cut_reason, self.cut_index, len(self.emitted_ids))

    @property
    def num_accepted_drafts(self) -> int:
        """Return the number of materialised candidates, the root not counted."""
        return len(self.nodes) - 1

    def check_against(self, tree: Tree, tag: TreeTag) -> None:
        """Refuse a path that is not one of `tree`, or does not continue `tag`."""
        for parent, node, token in zip(self.nodes, self.nodes[1:], self.emitted_ids, strict=False):
            if node >= tree.num_nodes or tree.parents[node] != parent:
                message = f"node {node} is not a live child of node {parent}"
                raise InvalidField("PATH_NODES", message, "nodes")
            if tree.token_ids[node] != token:
                message = f"node {node} carries another token than was emitted for it"
                raise InvalidField("PATH_TOKENS", message, "emitted_ids")
        expected = tag.committed_length + len(self.nodes)
        if self.committed_length != expected:
            message = f"{self.committed_length}; the tree's length and the path give {expected}"
            raise InvalidField("COMMITTED_LENGTH", message, "committed_length")


def _check_nodes(nodes: tuple[int, ...]) -> None:
    at_most(nodes, MAX_PATH, "nodes")
    if not nodes or nodes[0] != 0:
        raise InvalidField("PATH_ROOT", "a path starts at node 0", "nodes")
    for index, node in enumerate(nodes):
        whole(node, 0, MAX_ROWS - 1, f"nodes[{index}]")
    if any(a >= b for a, b in pairwise(nodes)):
        raise InvalidField("PATH_ORDER", "a parent precedes its child: ascending nodes", "nodes")


def _check_cut(reason: CutReason, index: int, num_emitted: int) -> None:
    if not isinstance(reason, CutReason):
        raise InvalidField("CUT_REASON", f"{reason!r} is not a CutReason", "cut_reason")
    expected = -1 if reason is CutReason.NONE else num_emitted - 1
    if index != expected:
        message = f"{index}; with {reason.name} and {num_emitted} emitted it is {expected}"
        raise InvalidField("CUT_INDEX", message, "cut_index")


def path_to_proto(
    path: AcceptedPath,
    tag: TreeTag,
    digest: bytes = b"",
    logprobs: Iterable[EmittedLogprobs] = (),
) -> "path_pb2.AcceptedPath":
    """Return the message of `path`; `tag` is that of the tree it was walked on."""
    from services.contract._pb import path_pb2

    message = path_pb2.AcceptedPath(
        request_id=tag.request_id,
        choice_index=tag.choice_index,
        epoch=tag.epoch,
        cycle=tag.cycle,
        slot=tag.slot,
        generation=tag.generation,
        nodes=path.nodes,
        emitted_ids=path.emitted_ids,
        pending_id=path.pending_id,
        committed_length=path.committed_length,
        logprobs=logprobs_to_proto(logprobs),
        cut_reason=f"CUT_REASON_{path.cut_reason.name}",
    )
    if path.cut_reason is not CutReason.NONE:
        message.cut_index = path.cut_index
    if digest:
        message.digest = digest
    return message


def path_from_proto(
    message: "path_pb2.AcceptedPath", vocab_size: int, epoch: int
) -> tuple[AcceptedPath, TreeTag]:
    """Return the path and the tag of its tree (its length is that before publication).

    Digest and log-probabilities are read apart: `message.digest`, `logprobs_from_proto`.
    Raises  StaleEpochError if it belongs to another wiring; InvalidField naming the field.
    """
    require(message, _FIELDS)
    if message.epoch != epoch:
        text = f"epoch {message.epoch}; the stage is wired for {epoch}"
        raise StaleEpochError("STALE_EPOCH", text, "epoch")
    at_most(message.nodes, MAX_PATH, "nodes")
    path = AcceptedPath(
        tuple(message.nodes),
        token_ids(message.emitted_ids, vocab_size, MAX_PATH, "emitted_ids"),
        message.pending_id,
        message.committed_length,
        _cut_reason(message.cut_reason),
        message.cut_index if message.HasField("cut_index") else -1,
    )
    return path, _tag(message, path.committed_length - len(path.nodes))


def _cut_reason(value: int) -> CutReason:
    try:
        return CutReason(value)
    except ValueError:
        message = f"{value} is not known; use one of {[int(x) for x in CutReason]}"
        raise InvalidField("CUT_REASON", message, "cut_reason") from None


def _tag(message: "path_pb2.AcceptedPath", committed_length: int) -> TreeTag:
    return TreeTag(
        message.request_id,
        message.choice_index,
        message.epoch,
        message.cycle,
        committed_length,
        message.slot,
        message.generation,
    )
