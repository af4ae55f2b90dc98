"""Whether the device tables say the same as the descriptors that were checked."""

from __future__ import annotations

from collections.abc import Sequence

from services.contract.errors import InvalidField
from services.contract.tree import Tree, TreeTag
from services.kernels.tree_tables import COMMITTED_LENGTH, CYCLE, LIVE, SLOT, TableViews

_CYCLE_MASK = 0x7FFFFFFF


def refuse_other_tables(tables: TableViews, trees: Sequence[tuple[Tree, TreeTag]]) -> None:
    """Raise InvalidField if a table block is not that of its tree.

    Numbers host memory only: on a GPU the tables arrive in stream order and are not read back.
    """
    if tables.block.device.type != "cpu":
        return
    headers = tables.header.tolist()
    parents, tokens = tables.parents.tolist(), tables.tokens.tolist()
    for index, (tree, tag) in enumerate(trees):
        live, header = tree.num_nodes, headers[index]
        named = (header[LIVE], header[SLOT], header[CYCLE], header[COMMITTED_LENGTH])
        wanted = (live, tag.slot, tag.cycle & _CYCLE_MASK, tag.committed_length)
        same = tuple(parents[index][:live]) == tree.parents
        if named != wanted or not same or tuple(tokens[index][:live]) != tree.token_ids:
            text = "the device tables are not those of the descriptor; draft again"
            raise InvalidField("TREE_TABLES", text, "cycle.sequences.tree")
