"""The MTP passes of a slab: stored rows first, then one drafted row a sequence at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import torch

from services.contract.limits import MAX_DEPTH, MAX_PATH, MAX_ROWS, MAX_SLAB
from services.drafter.draft import Marginals
from services.kernels import select

_WORDS: Final = MAX_SLAB * (2 * MAX_PATH + 3 + MAX_DEPTH)


class DraftHead(Protocol):
    """The MTP block, as far as drafting needs it; see services.model.mtp."""

    def prefill_chunk(
        self, token_ids: torch.Tensor, hidden: torch.Tensor, slot: int, start: int, count: int
    ) -> None:
        """Store the keys and values of prompt rows."""
        ...

    def first_pass(
        self,
        token_ids: torch.Tensor,
        hidden: torch.Tensor,
        slots: torch.Tensor,
        starts: torch.Tensor,
        counts: torch.Tensor,
        logits: torch.Tensor,
    ) -> None:
        """Run newly materialised rows; draft from the last of each sequence."""
        ...

    def chained_pass(
        self, token_ids: torch.Tensor, active: torch.Tensor, logits: torch.Tensor
    ) -> None:
        """Run one drafted row of each sequence that is active."""
        ...


@dataclass(frozen=True, slots=True)
class NewRows:
    """What one sequence's last cycle materialised, and how far to draft beyond it.

    Args    start: position of the first row. token_ids: the token after each row. nodes: their
            nodes in the ring half `ring` of the slot's hidden rows. num_passes: MTP depth.
    """

    slot: int
    start: int
    token_ids: tuple[int, ...]
    nodes: tuple[int, ...]
    ring: int
    num_passes: int


class MtpPasses:
    """Run the passes over buffers made once; one copy in and one copy out a cycle.

    Shapes  hidden_ring [S, 2, 32, d], prefill_hidden [grid, d]: the verifier's.
    """

    def __init__(
        self,
        head: DraftHead,
        hidden_ring: torch.Tensor,
        prefill_hidden: torch.Tensor,
        vocab_size: int,
    ) -> None:
        device, width = hidden_ring.device, hidden_ring.shape[-1]
        self._head = head
        self._ring = hidden_ring.view(-1, width)
        self._prompt_hidden = prefill_hidden
        self._prompt_ids = torch.zeros(prefill_hidden.shape[0], dtype=torch.int32, device=device)
        self._host = torch.zeros(_WORDS, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._words = self._host if device.type == "cpu" else self._host.to(device)
        self._hidden = self._ring.new_zeros((MAX_SLAB * MAX_PATH, width))
        self._logits = torch.zeros((MAX_SLAB, vocab_size), device=device)
        self._drafted = torch.zeros(MAX_SLAB, dtype=torch.int32, device=device)
        shape = (MAX_DEPTH, MAX_SLAB * MAX_ROWS)
        self._ids = torch.zeros(shape, dtype=torch.int32, device=device)
        self._values = torch.zeros(shape, device=device)
        self._norms = torch.zeros((MAX_DEPTH, MAX_SLAB), device=device)
        self.num_passes = 0

    def store_prompt(self, token_ids: list[int], slot: int, start: int) -> None:
        """Run prompt rows `start`.. through the block; token_ids[i] follows row start + i."""
        count = len(token_ids)
        if count:
            self._prompt_ids[:count] = torch.tensor(token_ids, dtype=torch.int32)
            self._head.prefill_chunk(self._prompt_ids, self._prompt_hidden, slot, start, count)

    def run(self, rows: list[NewRows], num_ranks: int) -> list[Marginals]:
        """Return the `num_ranks` best tokens of each pass of each sequence.

        Writes  the block's keys and values of the new rows, whatever is drafted.
        """
        batch, depth = len(rows), max(row.num_passes for row in rows)
        self._stage(rows)
        ids, gather, slots, starts, counts, active = self._inputs(batch)
        hidden, logits = self._hidden[: batch * MAX_PATH], self._logits[:batch]
        torch.index_select(self._ring, 0, gather, out=hidden)
        self._head.first_pass(ids, hidden, slots, starts, counts, logits)
        for index in range(depth):
            best = self._rank(index, batch, num_ranks, logits)
            if index + 1 < depth:
                drafted = self._drafted[:batch].copy_(best[:, 0])
                drafted.clamp_(0, self._logits.shape[1] - 1)
                self._head.chained_pass(drafted, active[index + 1], logits)
        self.num_passes += 1 + max(depth - 1, 0)
        return self._read(rows, depth, num_ranks)

    def _stage(self, rows: list[NewRows]) -> None:
        """Write the inputs of a slab as one block of words."""
        padding = [0] * MAX_PATH
        ids: list[int] = []
        gather: list[int] = []
        for row in rows:
            base = (row.slot * 2 + row.ring) * MAX_ROWS
            ids += (*row.token_ids, *padding)[:MAX_PATH]
            gather += (*(base + node for node in row.nodes), *[base] * MAX_PATH)[:MAX_PATH]
        words = [
            *ids,
            *gather,
            *(row.slot for row in rows),
            *(row.start for row in rows),
            *(len(row.token_ids) for row in rows),
            *(int(index < row.num_passes) for index in range(MAX_DEPTH) for row in rows),
        ]
        self._host[: len(words)] = torch.tensor(words, dtype=torch.int32)
        if self._words is not self._host:
            self._words.copy_(self._host, non_blocking=True)

    def _inputs(self, batch: int) -> tuple[torch.Tensor, ...]:
        sizes = [batch * MAX_PATH] * 2 + [batch] * 3 + [MAX_DEPTH * batch]
        parts = self._words[: sum(sizes)].split(sizes)
        return (*parts[:5], parts[5].view(MAX_DEPTH, batch))

    def _rank(self, index: int, batch: int, count: int, logits: torch.Tensor) -> torch.Tensor:
        values = self._values[index, : batch * count].view(batch, count)
        ids = self._ids[index, : batch * count].view(batch, count)
        select.top_ranked(logits, count, values, ids)
        torch.logsumexp(logits, 1, out=self._norms[index, :batch])
        return ids

    def _read(self, rows: list[NewRows], depth: int, count: int) -> list[Marginals]:
        width = len(rows) * count
        ids = self._ids[:depth, :width].tolist()
        logprobs = self._values[:depth, :width].unflatten(1, (len(rows), count))
        logprobs = (logprobs - self._norms[:depth, : len(rows), None]).tolist()
        found = []
        for place, row in enumerate(rows):
            found.append(
                Marginals(
                    [ids[d][place * count : (place + 1) * count] for d in range(row.num_passes)],
                    [logprobs[d][place] for d in range(row.num_passes)],
                )
            )
        return found
