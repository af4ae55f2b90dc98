"""Trees on the wire: one validator for every rule of TreeDescriptor."""

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from services.contract.checks import require, text, whole
from services.contract.errors import InvalidField, StaleEpochError, UnsupportedError
from services.contract.limits import (
    DESCRIPTOR_VERSION,
    MAX_CHOICES,
    MAX_CONTEXT,
    MAX_COUNTER,
    MAX_PATH,
    MAX_REQUEST_ID,
    MAX_ROWS,
    MAX_SEQUENCES,
)
from services.contract.topology import NodeSource, Tree

if TYPE_CHECKING:
    from services.contract._pb.tree_pb2 import TreeDescriptor

__all__ = ["NodeSource", "Tree", "TreeTag", "tree_checksum", "tree_from_proto", "tree_to_proto"]

_TAG_FIELDS: Final = (
    "version",
    "request_id",
    "choice_index",
    "epoch",
    "cycle",
    "committed_length",
    "slot",
    "generation",
    "row_capacity",
    "active_count",
    "checksum",
)
_WORDS: Final = tuple(
    struct.Struct(f"<{n}I{n}i{n}I{n}I{n}I{n}f{n}I{n}I{n}I") for n in range(MAX_ROWS + 1)
)


class _Columns(NamedTuple):
    """The per-node columns in field order."""

    token_ids: list[int]
    parents: list[int]
    depths: list[int]
    positions: list[int]
    sources: list[int]
    draft_logprobs: list[float]
    is_padding: list[bool]
    node_to_slot: list[int]
    slot_to_node: list[int]


@dataclass(frozen=True, slots=True)
class TreeTag:
    """Say whose tree it is, of which cycle and wiring, and where its state lies."""

    request_id: str
    choice_index: int
    epoch: int
    cycle: int
    committed_length: int
    slot: int
    generation: int

    def __post_init__(self) -> None:
        text(self.request_id, MAX_REQUEST_ID, "request_id")
        whole(self.choice_index, 0, MAX_CHOICES - 1, "choice_index")
        whole(self.epoch, 0, MAX_COUNTER, "epoch")
        whole(self.cycle, 0, MAX_COUNTER, "cycle")
        whole(self.committed_length, 0, MAX_CONTEXT - 1, "committed_length")
        whole(self.slot, 0, MAX_SEQUENCES - 1, "slot")
        whole(self.generation, 0, MAX_COUNTER, "generation")


def tree_checksum(columns: Iterable[Sequence[float]]) -> int:
    """Return the CRC-32 of the nine columns as little-endian words, in field order."""
    values = list(chain.from_iterable(columns))
    return zlib.crc32(_WORDS[len(values) // 9].pack(*values))


def tree_to_proto(tree: Tree, tag: TreeTag, row_capacity: int = MAX_ROWS) -> "TreeDescriptor":
    """Return the descriptor of `tree`, padded to `row_capacity` rows."""
    from services.contract._pb.tree_pb2 import TreeDescriptor

    live = tree.num_nodes
    whole(row_capacity, live, MAX_ROWS, "row_capacity")
    columns = _columns(tree, tag.committed_length, row_capacity - live)
    return TreeDescriptor(
        version=DESCRIPTOR_VERSION,
        request_id=tag.request_id,
        choice_index=tag.choice_index,
        epoch=tag.epoch,
        cycle=tag.cycle,
        committed_length=tag.committed_length,
        slot=tag.slot,
        generation=tag.generation,
        row_capacity=row_capacity,
        active_count=live,
        checksum=tree_checksum(columns),
        **columns._asdict(),
    )


def _columns(tree: Tree, committed_length: int, num_padding: int) -> _Columns:
    live = tree.num_nodes
    rows = list(range(live + num_padding))
    depths = [*tree.depths, *[0] * num_padding]
    return _Columns(
        token_ids=[*tree.token_ids, *[0] * num_padding],
        parents=[*tree.parents, *[-1] * num_padding],
        depths=depths,
        positions=[committed_length + depth for depth in depths],
        sources=[*tree.sources, *[int(NodeSource.PADDING)] * num_padding],
        draft_logprobs=[*tree.draft_logprobs, *[0.0] * num_padding],
        is_padding=[False] * live + [True] * num_padding,
        node_to_slot=rows,
        slot_to_node=rows,
    )


def tree_from_proto(message: "TreeDescriptor", vocab_size: int, epoch: int) -> tuple[Tree, TreeTag]:
    """Return the tree and its tag after checking every rule of the contract.

    Raises  StaleEpochError if it belongs to another wiring; InvalidField naming the field.
    Numbers bounded by 32 rows whatever the message holds; no recursion.
    """
    tag = _checked_tag(message, epoch)
    rows = whole(message.row_capacity, 1, MAX_ROWS, "row_capacity")
    live = whole(message.active_count, 1, rows, "active_count")
    columns = _checked_columns(message, rows)
    _check_padding_flags(columns.is_padding, live)
    tree = Tree(
        tuple(columns.parents[:live]),
        tuple(columns.token_ids[:live]),
        tuple(columns.sources[:live]),
        tuple(columns.draft_logprobs[:live]),
    )
    tree.check_vocabulary(vocab_size)
    _check_slots(columns.node_to_slot, columns.slot_to_node)
    _check_derived(columns, _columns(tree, tag.committed_length, rows - live))
    if tree_checksum(columns) != message.checksum:
        raise InvalidField("CHECKSUM", "the columns do not have this CRC-32", "checksum")
    return tree, tag


def _checked_tag(message: "TreeDescriptor", epoch: int) -> TreeTag:
    require(message, _TAG_FIELDS)
    if message.version != DESCRIPTOR_VERSION:
        text_ = f"version {message.version}; this build reads {DESCRIPTOR_VERSION}"
        raise UnsupportedError("DESCRIPTOR_VERSION", text_, "version")
    if message.epoch != epoch:
        text_ = f"epoch {message.epoch}; the stage is wired for {epoch}"
        raise StaleEpochError("STALE_EPOCH", text_, "epoch")
    tag = TreeTag(
        message.request_id,
        message.choice_index,
        message.epoch,
        message.cycle,
        message.committed_length,
        message.slot,
        message.generation,
    )
    whole(tag.committed_length, 0, MAX_CONTEXT - MAX_PATH, "committed_length")
    return tag


def _checked_columns(message: "TreeDescriptor", rows: int) -> _Columns:
    for name in _Columns._fields:
        length = len(getattr(message, name))
        if length != rows:
            raise InvalidField("TREE_COLUMN", f"{length} entries for {rows} rows", name)
    return _Columns(*(getattr(message, name)[:] for name in _Columns._fields))


def _check_padding_flags(is_padding: list[bool], live: int) -> None:
    if is_padding != [False] * live + [True] * (len(is_padding) - live):
        message = f"live rows are 0..{live - 1}; mark the rows after them, and no other"
        raise InvalidField("PADDING", message, "is_padding")


def _check_slots(node_to_slot: list[int], slot_to_node: list[int]) -> None:
    rows = range(len(node_to_slot))
    if node_to_slot == slot_to_node == list(rows):
        return
    if sorted(node_to_slot) != list(rows):
        message = f"not a bijection onto 0..{len(rows) - 1}"
        raise InvalidField("SLOT_BIJECTION", message, "node_to_slot")
    if any(slot_to_node[slot] != node for node, slot in enumerate(node_to_slot)):
        raise InvalidField("SLOT_BIJECTION", "not the inverse of node_to_slot", "slot_to_node")
    message = "node i lies in ring slot i in this version; order the nodes instead"
    raise UnsupportedError("SLOT_ORDER", message, "node_to_slot")


def _check_derived(columns: _Columns, expected: _Columns) -> None:
    """Refuse depths and positions that the parents do not give, and unclean padding."""
    if columns == expected:
        return
    for name in _Columns._fields:
        got, want = getattr(columns, name), getattr(expected, name)
        for row, (sent, derived) in enumerate(zip(got, want, strict=True)):
            if sent != derived:
                message = f"row {row} has {sent}; the tree gives {derived}"
                raise InvalidField("TREE_COLUMN_VALUE", message, name)
