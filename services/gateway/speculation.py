"""Count what drafting gained: accepted drafts by depth and by source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.contract.tree import Tree


@dataclass(frozen=True, slots=True)
class SpecSummary:
    """Speculation figures of a sequence or of many; fields named as vLLM names them.

    Numbers accepted drafts exclude the token each cycle draws itself;
            mean_acceptance_length = 1 + mean_accepted_drafts.
    """

    num_spec_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    acceptance_histogram: tuple[int, ...]
    accepted_by_depth: tuple[int, ...]
    drafted_by_source: dict[str, int]
    accepted_by_source: dict[str, int]

    @property
    def mean_accepted_drafts(self) -> float:
        """Accepted drafts a cycle."""
        return self.num_accepted_draft_tokens / max(self.num_spec_steps, 1)

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens a cycle, its own draw included."""
        return 1.0 + self.mean_accepted_drafts

    @property
    def draft_acceptance_rate(self) -> float:
        """Accepted share of all drafts, in [0, 1]."""
        return self.num_accepted_draft_tokens / max(self.num_draft_tokens, 1)


@dataclass(slots=True)
class SpecCounter:
    """Grows a SpecSummary cycle by cycle."""

    cycles: int = 0
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    depths: Counter[int] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)

    def add(self, tree: Tree, nodes: Sequence[int]) -> None:
        """Count one cycle: its tree and the materialised nodes, root first."""
        self.cycles += 1
        self.lengths[len(nodes) - 1] += 1
        self.drafted.update(source_name(source) for source in tree.sources[1:])
        self.accepted.update(source_name(tree.sources[node]) for node in nodes[1:])
        self.depths.update(range(1, len(nodes)))

    def summary(self) -> SpecSummary:
        """Return the figures so far."""
        return SpecSummary(
            num_spec_steps=self.cycles,
            num_draft_tokens=sum(self.drafted.values()),
            num_accepted_draft_tokens=sum(self.accepted.values()),
            acceptance_histogram=_dense(self.lengths, first=0),
            accepted_by_depth=_dense(self.depths, first=1),
            drafted_by_source=dict(sorted(self.drafted.items())),
            accepted_by_source=dict(sorted(self.accepted.items())),
        )


def merge(summaries: Sequence[SpecSummary]) -> SpecSummary:
    """Pool the figures of several sequences."""
    return SpecSummary(
        num_spec_steps=sum(s.num_spec_steps for s in summaries),
        num_draft_tokens=sum(s.num_draft_tokens for s in summaries),
        num_accepted_draft_tokens=sum(s.num_accepted_draft_tokens for s in summaries),
        acceptance_histogram=_added([s.acceptance_histogram for s in summaries]),
        accepted_by_depth=_added([s.accepted_by_depth for s in summaries]),
        drafted_by_source=_pooled([s.drafted_by_source for s in summaries]),
        accepted_by_source=_pooled([s.accepted_by_source for s in summaries]),
    )


def source_name(source: int) -> str:
    """Return the short name of a NodeSource."""
    return _SOURCE_NAMES[source]


_SOURCE_NAMES = (
    "unspecified",
    "root",
    "mtp_spine",
    "mtp_runner_up",
    "suffix_tail",
    "suffix_rescue",
    "test",
    "forced",
    "padding",
)


def _dense(counts: Counter[int], first: int) -> tuple[int, ...]:
    return tuple(counts[index] for index in range(first, max(counts, default=first - 1) + 1))


def _added(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    width = max(map(len, rows), default=0)
    return tuple(sum(row[i] for row in rows if i < len(row)) for i in range(width))


def _pooled(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
