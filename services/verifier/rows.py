"""The rows a sequence owns in the verifier's arena: cleared, filled, paged, gathered."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from services.contract.errors import InvalidField
from services.contract.limits import MAX_SLAB, PAGE, TABLE_WORDS
from services.contract.sampling import Budget, SamplingParams
from services.contract.tree import Tree
from services.kernels.sample import params
from services.kernels.state_words import EPOCH, GENERATION
from services.kernels.tree_tables import TableViews, build_tables
from services.runtime.arena import Arena
from services.runtime.graphs import Mirror
from services.runtime.ring_guard import SlotRecord

_CLEARED = (
    *("recurrent", "conv", "words", "page_table", "hidden_ring", "path", "output_counts"),
    *("logprob_ids", "logprob_values"),
)
WORD_MASK = 0x7FFFFFFF


def reset_rows(state: Arena, record: SlotRecord, epoch: int) -> None:
    """Clear everything that the slot's earlier sequence left, and fill the new one's values."""
    slot = record.ref.slot
    for name in _CLEARED:
        state[name][slot].zero_()
    words = torch.zeros(state["words"].shape[1], dtype=torch.int32)
    words[EPOCH], words[GENERATION] = epoch & WORD_MASK, record.ref.generation & WORD_MASK
    sampling = torch.zeros_like(state["sampling"][slot], device="cpu")
    marks = torch.zeros_like(state["prompt_mask"][slot], device="cpu")
    bias = torch.zeros_like(state["logit_bias"][slot], device="cpu")
    params.pack(record.sampling, record.budget, record.choice_index, sampling.numpy())
    params.fill_marks(record.budget, marks.numpy())
    params.fill_bias(record.sampling, bias.numpy())
    rows = {"words": words, "sampling": sampling, "prompt_mask": marks, "logit_bias": bias}
    for name, row in rows.items():
        state[name][slot].copy_(row)


def fill_defaults(state: Arena) -> None:
    """Give every slot greedy sampling values, for runs before any sequence is there."""
    row = torch.zeros_like(state["sampling"][0], device="cpu")
    params.pack(SamplingParams(), Budget(1, context_length=PAGE), 0, row.numpy())
    state["sampling"].copy_(row.expand_as(state["sampling"]))


def mark_prompt(state: Arena, slot: int, token_ids: Sequence[int]) -> None:
    """Remember prompt tokens for the repetition penalty."""
    marks = state["prompt_mask"][slot]
    ids = torch.tensor(token_ids, dtype=torch.int64, device=marks.device)
    marks[ids] |= params.IN_PROMPT


class PageBooks:
    """How many pages each slot's table holds."""

    def __init__(self, state: Arena) -> None:
        self._table = state["page_table"]
        self._num_pages = state["kv"].shape[1]
        self._counts = [0] * self._table.shape[0]

    def clear(self, slot: int) -> None:
        """Forget a slot's pages."""
        self._counts[slot] = 0

    def check(self, slot: int, pages: Sequence[int], num_positions: int) -> None:
        """Refuse pages that do not exist or do not fit, or that leave positions without one.

        Raises  InvalidField naming the limit.
        """
        total = self._counts[slot] + len(pages)
        if total > self._table.shape[1] or any(page >= self._num_pages for page in pages):
            text = f"{total} pages; at most {self._table.shape[1]}, ids below {self._num_pages}"
            raise InvalidField("PAGES", text, "new_pages")
        if num_positions > total * PAGE:
            text = f"{total} pages hold {total * PAGE} positions; {num_positions} are needed"
            raise InvalidField("PAGES", text, "new_pages")

    def append(self, slot: int, pages: Sequence[int]) -> None:
        """Add checked pages to a slot's table."""
        if pages:
            start = self._counts[slot]
            row = torch.tensor(list(pages), dtype=torch.int32, device=self._table.device)
            self._table[slot, start : start + len(pages)] = row
            self._counts[slot] += len(pages)


class Slab:
    """Gathers the tree tables of up to four sequences, wherever their slots lie."""

    def __init__(self, tree_tables: torch.Tensor, logits: torch.Tensor) -> None:
        device = tree_tables.device
        self._tree_tables = tree_tables
        self._logits = logits
        self._slots = Mirror(torch.zeros(MAX_SLAB, dtype=torch.int32, device=device))
        self._block = torch.zeros((MAX_SLAB, TABLE_WORDS), dtype=torch.int32, device=device)

    def choose(self, slots: Sequence[int]) -> tuple[TableViews, torch.Tensor]:
        """Return where the slots' tables [B, TABLE_WORDS] will lie, and logits [B, 32, V]."""
        self._slots.write(slots)
        return TableViews(self._block[: len(slots)]), self._logits[: len(slots)]

    def gather(self, count: int) -> None:
        """Gather the tables of the slots last chosen; it can be captured by their number."""
        slots = self._slots.push(count)
        torch.index_select(self._tree_tables, 0, slots, out=self._block[:count])

    def roots(self, count: int) -> tuple[TableViews, torch.Tensor]:
        """Return the tables of `count` lone roots, for runs before any sequence is there."""
        block = torch.zeros((count, TABLE_WORDS), dtype=torch.int32)
        for slot, row in enumerate(block.numpy()):
            build_tables(Tree.root_only(0), 0, slot, 0, row)
        self._block[:count].copy_(block)
        return TableViews(self._block[:count]), self._logits[:count]


def padded(token_ids: Sequence[int], grid: int, device: torch.device) -> torch.Tensor:
    """Return a chunk's ids as [grid] int32, filled up with id 0."""
    row = torch.zeros(grid, dtype=torch.int32)
    row[: len(token_ids)] = torch.tensor(list(token_ids), dtype=torch.int32)
    return row.to(device)


def num_positions(record: SlotRecord, max_depth: int) -> int:
    """Return how many positions a cycle may materialise at most."""
    budget = record.budget
    end = min(record.prompt_length - 1 + budget.max_tokens, budget.context_length)
    return min(record.length + 1 + max_depth, end)
