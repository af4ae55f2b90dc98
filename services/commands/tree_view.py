"""Draw a verified tree and the figures of a generation for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text
from rich.tree import Tree as RichTree

from services.contract.tree import Tree
from services.gateway.speculation import SpecSummary, source_name

_STYLES = {
    "root": "bold white",
    "mtp_spine": "cyan",
    "mtp_runner_up": "blue",
    "suffix_tail": "magenta",
    "suffix_rescue": "yellow",
    "test": "white",
    "forced": "white",
}


def draw_tree(tree: Tree, nodes: Sequence[int], text_of: Callable[[int], str]) -> RichTree:
    """Return a view of a verified tree; accepted nodes are bold and carry a check mark."""
    accepted = set(nodes)
    branches: list[RichTree] = []
    for node, parent in enumerate(tree.parents):
        label = _label(tree, node, node in accepted, text_of)
        branch = RichTree(label) if parent < 0 else branches[parent].add(label)
        branches.append(branch)
    return branches[0]


def _label(tree: Tree, node: int, is_accepted: bool, text_of: Callable[[int], str]) -> Text:
    name = source_name(tree.sources[node])
    style = _STYLES[name]
    label = Text(
        repr(text_of(tree.token_ids[node])), style=f"bold {style}" if is_accepted else style
    )
    label.append(f"  {name}", style="dim")
    label.append("  \u2713" if is_accepted else "", style="bold green")
    return label


def legend() -> Text:
    """Return one line that explains the view's colours."""
    line = Text("\u2713 accepted", style="bold green")
    for name in ("mtp_spine", "mtp_runner_up", "suffix_tail", "suffix_rescue"):
        line.append(f"  {name}", style=_STYLES[name])
    return line


def acceptance_table(spec: SpecSummary) -> Table:
    """Return accepted drafts by depth with a bar, and by source with their share."""
    table = Table(title="accepted drafts", title_justify="left", box=None, pad_edge=False)
    for column in ("depth", "accepted", "of cycles"):
        table.add_column(column, justify="right")
    table.add_column("")
    for depth, count in enumerate(spec.accepted_by_depth, start=1):
        share = count / max(spec.num_spec_steps, 1)
        table.add_row(str(depth), str(count), f"{share:.0%}", "\u2588" * round(share * 24))
    return table


def source_table(spec: SpecSummary) -> Table:
    """Return drafted and accepted candidates by source."""
    table = Table(title="by source", title_justify="left", box=None, pad_edge=False)
    table.add_column("source")
    for column in ("drafted", "accepted"):
        table.add_column(column, justify="right")
    for name, drafted in spec.drafted_by_source.items():
        table.add_row(name, str(drafted), str(spec.accepted_by_source.get(name, 0)))
    return table
