"""The MTP passes of a slab: stored rows first, then one drafted row a sequence at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import torch

from services.contract.limits import DEFAULT_DEPTH, MAX_DEPTH, MAX_PATH, MAX_ROWS, MAX_SLAB
from services.contract.sampling import SamplingParams
from services.drafter.draft import Marginals
from services.drafter.penalties import DraftPenalties
from services.kernels import select
from services.runtime.graphs import Graphs, Mirror, finish

_WORDS: Final = MAX_SLAB * (2 * MAX_PATH + 3 + MAX_DEPTH)


_RANKED: Final = MAX_SLAB * MAX_ROWS
# On a GPU at least so many tokens of a pass are ranked: its graph serves every usual shape.
LEAST_RANKS: Final = 4


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


class Watch(Protocol):
    """Something that sees each pass's best token."""

    def take(self, token: int, logprob: float) -> bool:
        """Return whether one more pass is worth its time."""
        ...


@dataclass(frozen=True, slots=True)
class NewRows:
    """What one sequence's last cycle materialised, and how far to draft beyond it.

    Args    start: position of the first row. token_ids: the token after each row. nodes: their
            nodes in the ring half `ring` of the slot's hidden rows. num_passes: most MTP
            passes. watch: may end them earlier, where the host can look between passes.
            sampling: whose penalties the drafts should foresee.
    """

    slot: int
    start: int
    token_ids: tuple[int, ...]
    nodes: tuple[int, ...]
    ring: int
    num_passes: int
    watch: Watch | None = None
    sampling: SamplingParams | None = None


class MtpPasses:
    """Run the passes over buffers made once.

    On a CPU the rows are as many as the longest run needs, and a watch may end the passes; on
    other devices rows are padded to 16 and passes are fixed, one copy in and one out a cycle.
    Shapes  hidden_ring [S, 2, 32, d], prefill_hidden [grid, d]: the verifier's.
    """

    def __init__(
        self,
        head: DraftHead,
        hidden_ring: torch.Tensor,
        prefill_hidden: torch.Tensor,
        vocab_size: int,
        penalties: DraftPenalties | None = None,
    ) -> None:
        self._penalties = penalties
        device, width = hidden_ring.device, hidden_ring.shape[-1]
        self._head = head
        self._on_host = device.type == "cpu"
        self._ring = hidden_ring.view(-1, width)
        self._prompt_hidden = prefill_hidden
        self._prompt_ids = torch.zeros(prefill_hidden.shape[0], dtype=torch.int32, device=device)
        self.graphs = Graphs(device)
        self._words = Mirror(torch.zeros(_WORDS, dtype=torch.int32, device=device))
        self._hidden = self._ring.new_zeros((MAX_SLAB * MAX_PATH, width))
        self._logits = torch.zeros((MAX_SLAB, vocab_size), device=device)
        self._drafted = torch.zeros(MAX_SLAB, dtype=torch.int32, device=device)
        results = torch.zeros((MAX_DEPTH, 2 * _RANKED + MAX_SLAB), dtype=torch.int32, device=device)
        self._results = Mirror(results)
        self._ids, self._values, self._norms = _parts(results)
        self._read_parts = _parts(self._results.host)
        self.num_passes = 0

    def warmup(self, batch: int) -> None:
        """Run a slab of so many sequences once at the usual depth; slots must be free."""
        depth = 2 if self._on_host else DEFAULT_DEPTH
        rows = [NewRows(slot, 0, (0,), (0,), 0, depth) for slot in range(batch)]
        self.run(rows, LEAST_RANKS)

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
        batch, width = len(rows), self._width(rows)
        allowed = [self._allowed(row) for row in rows]
        num_words = self._stage(rows, width, allowed)
        ids, gather, slots, starts, counts, active = self._inputs(batch, width)
        hidden, logits = self._hidden[: batch * width], self._logits[:batch]
        count = num_ranks if self._on_host else max(num_ranks, LEAST_RANKS)
        penalties = self._penalties
        if penalties is not None and not penalties.stage([row.sampling for row in rows]):
            penalties = None

        def first() -> None:
            self._words.push(num_words)
            torch.index_select(self._ring, 0, gather, out=hidden)
            self._head.first_pass(ids, hidden, slots, starts, counts, logits)
            if penalties is not None:
                penalties.gather(slots)

        def later(index: int) -> None:
            if index:
                self._head.chained_pass(self._drafted[:batch], active[index], logits)
            if penalties is not None:
                penalties.apply(logits)
            self._rank(index, batch, count, logits)

        depth = max(allowed)
        if self._on_host:
            first()
            depth = self._watched(rows, count, allowed, active, later)
        else:
            # A pass a graph: the device runs one while the host launches the next.
            key = batch, penalties is not None
            self.graphs.run(("first", *key), first)
            for index in range(depth):
                self.graphs.run((index, count, *key), partial(later, index))
        self.num_passes += max(1, depth)
        return self._read(batch, allowed, count)

    def _watched(
        self,
        rows: list[NewRows],
        count: int,
        allowed: list[int],
        active: torch.Tensor,
        later: Callable[[int], None],
    ) -> int:
        """Run passes until the watches end them; return how many ran."""
        for index in range(max(allowed)):
            later(index)
            if self._ask(index, rows, count, allowed, active):
                return index + 1
        return max(allowed)

    def _width(self, rows: list[NewRows]) -> int:
        return max(len(row.token_ids) for row in rows) if self._on_host else MAX_PATH

    def _allowed(self, row: NewRows) -> int:
        watched = row.watch is not None and not self._on_host
        return min(row.num_passes, DEFAULT_DEPTH) if watched else row.num_passes

    def _stage(self, rows: list[NewRows], width: int, allowed: list[int]) -> int:
        """Write the inputs of a slab as one block of words; return their number."""
        ids: list[int] = []
        gather: list[int] = []
        for row in rows:
            base = (row.slot * 2 + row.ring) * MAX_ROWS
            missing = width - len(row.token_ids)
            ids += (*row.token_ids, *[0] * missing)
            gather += (*(base + node for node in row.nodes), *[base] * missing)
        words = [
            *ids,
            *gather,
            *(row.slot for row in rows),
            *(row.start for row in rows),
            *(len(row.token_ids) for row in rows),
            *(int(index < count) for index in range(MAX_DEPTH) for count in allowed),
        ]
        self._words.write(words)
        return len(words)

    def _inputs(self, batch: int, width: int) -> tuple[torch.Tensor, ...]:
        sizes = [batch * width] * 2 + [batch] * 3 + [MAX_DEPTH * batch]
        parts = self._words.device[: sum(sizes)].split(sizes)
        return (*parts[:5], parts[5].view(MAX_DEPTH, batch))

    def _rank(self, index: int, batch: int, count: int, logits: torch.Tensor) -> None:
        """Rank one pass's logits and make its best tokens the next pass's input."""
        values = self._values[index, : batch * count].view(batch, count)
        ids = self._ids[index, : batch * count].view(batch, count)
        select.top_ranked(logits, count, values, ids, totals=self._norms[index, :batch])
        self._drafted[:batch].copy_(ids[:, 0])

    def _ask(
        self,
        index: int,
        rows: list[NewRows],
        count: int,
        allowed: list[int],
        active: torch.Tensor,
    ) -> bool:
        """Let watches end their sequences' passes; return whether all have ended."""
        for place, row in enumerate(rows):
            if row.watch is None or index + 1 >= allowed[place]:
                continue
            token = int(self._drafted[place])
            logprob = float(self._values[index, place * count] - self._norms[index, place])
            if not row.watch.take(token, logprob):
                allowed[place] = index + 1
                active[index + 1 :, place] = 0
        return index + 1 >= max(allowed)

    def _read(self, batch: int, allowed: list[int], count: int) -> list[Marginals]:
        self._results.fetch()
        finish(self._words.device.device)
        depth = max(allowed)
        found, values, norms = (part[:depth].numpy() for part in self._read_parts)
        ids = found[:, : batch * count].tolist()
        values = values[:, : batch * count].reshape(depth, batch, count)
        logprobs = (values - norms[:, :batch, None]).tolist()
        return [
            Marginals(
                [ids[d][place * count : (place + 1) * count] for d in range(passes)],
                [logprobs[d][place] for d in range(passes)],
            )
            for place, passes in enumerate(allowed)
        ]


def _parts(results: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (ids, values, norms) of each pass, the last two as fp32."""
    ids, values, norms = results.split((_RANKED, _RANKED, MAX_SLAB), dim=1)
    return ids, values.view(torch.float32), norms.view(torch.float32)
