"""The drafter stage: keeps the MTP cache and the suffix indexes, sends one tree a cycle."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from services.contract import pb
from services.contract.checks import token_ids, whole
from services.contract.errors import InvalidField, PreconditionError
from services.contract.limits import MAX_SLAB
from services.contract.tree import NodeSource, tree_to_proto
from services.drafter.adaptive import ROW_COST, Growth, learn
from services.drafter.calibration import Calibration
from services.drafter.draft import Draft, Marginals, trimmed
from services.drafter.fill import fill_shape
from services.drafter.lookup import RequestText, TenantTexts
from services.drafter.passes import DraftHead, MtpPasses, NewRows
from services.drafter.penalties import DraftPenalties
from services.drafter.probes import parse_probe
from services.drafter.sequence import DraftedSequence
from services.drafter.shape import parse_shape
from services.kernels import linear
from services.kernels.tree_tables import build_tables
from services.runtime.buffers import Arenas
from services.runtime.graphs import Graphs
from services.runtime.ring_guard import SlotRecord, check_chunk, check_cycle
from services.runtime.stage import Stage, StageMessage

CycleSequence = pb.stage_pb2.CycleSequence
_INDEXED_A_CYCLE = 16
_INDEXED_ELSE = 256


@dataclass(frozen=True, slots=True)
class _PromptRows:
    """Prompt rows whose hidden states lie in the verifier's buffer until the next message."""

    slot: int
    start: int
    token_ids: list[int]


class DrafterStage(Stage):
    """Draft a tree for every sequence of a slab.

    Args    head: the MTP block; None for a checkpoint without one (suffixes still draft).
            context_length: positions that pages exist for. allow_probes: whether a request may
            name a test drafter. draft_vocab: ids the MTP head ranks; 0 is all of them.
    """

    name = "drafter"

    def __init__(
        self,
        head: DraftHead | None,
        arenas: Arenas,
        epoch: int,
        prefill_grid: int,
        vocab_size: int,
        context_length: int,
        allow_probes: bool = True,
        draft_vocab: int = 0,
    ) -> None:
        tables, verifier = arenas.drafter["tree_tables"], arenas.verifier
        super().__init__(epoch, tables.shape[0])
        self._passes: MtpPasses | None = None
        if head is not None:
            rings = verifier["hidden_ring"], verifier["prefill_hidden"]
            penalties = DraftPenalties(verifier["output_counts"], verifier["logit_bias"])
            self._passes = MtpPasses(head, *rings, draft_vocab or vocab_size, penalties)
        self._tables = tables
        self._host_tables = torch.zeros_like(tables, device="cpu", pin_memory=tables.is_cuda)
        self._grid, self._vocab_size, self._context = prefill_grid, vocab_size, context_length
        self._allow_probes = allow_probes
        fixed = linear.needs_fixed_rows(tables.device.type)
        self._row_cost = 0.0 if fixed else ROW_COST
        self._texts: dict[int, RequestText] = {}
        self._tenants = TenantTexts()
        self._calibrations = {True: Calibration(), False: Calibration()}
        self._sequences: dict[int, DraftedSequence] = {}
        self._pending: _PromptRows | None = None
        self._counts |= {"drafted_nodes": 0, "mtp_us": 0, "tree_us": 0}

    @property
    def graphs(self) -> Graphs:
        """Return the captured passes."""
        return self._passes.graphs if self._passes else Graphs(torch.device("cpu"))

    def warmup(self) -> None:
        """Run every pass once, for each slab size, on rows that no sequence owns yet."""
        if self._passes is not None:
            for batch in range(1, min(MAX_SLAB, self.slots.num_slots) + 1):
                self._passes.warmup(batch)

    def rewire(self, epoch: int) -> None:
        """Forget every live sequence; tenants' finished texts stay."""
        super().rewire(epoch)
        self._sequences.clear()
        self._pending = None

    def stats(self) -> dict[str, Any]:
        """Return the counters: passes, times, sizes of the suffix indexes."""
        return {
            **super().stats(),
            "mtp_passes": self._passes.num_passes if self._passes else 0,
            "tenants": len(self._tenants),
            "tenant_index_bytes": self._tenants.size_bytes,
        }

    def close(self) -> None:
        """Drop every reference to device memory."""
        self._passes = None
        self._sequences.clear()
        del self._tables

    def admit(self, message: StageMessage) -> StageMessage:
        """Start a sequence: parse its shape and drafter, clear its slot's text."""
        self._begin(_INDEXED_ELSE)
        drafting = message.admit.drafting
        shape = parse_shape(drafting.shape)
        if drafting.drafter != "mtp" and not self._allow_probes:
            text = f"{drafting.drafter!r}: test drafters are off here; use mtp"
            raise PreconditionError("DRAFTER", text, "drafter")
        probe = parse_probe(drafting.drafter, self._vocab_size)
        record = self.slots.admit(message.admit)
        drafts = probe is None and (shape.num_nodes > 1 or shape.is_adaptive)
        self._sequences[record.ref.slot] = DraftedSequence(
            record,
            shape,
            self._text(record) if drafts and record.drafting.suffix else None,
            probe,
            self._calibrations[record.sampling.is_greedy],
            uses_mtp=drafts and self._passes is not None and shape.num_passes > 0,
        )
        return message

    def prefill(self, message: StageMessage) -> StageMessage:
        """Take prompt tokens; their rows go through the MTP block at the next message."""
        chunk = message.prefill
        record = self.slots.get(chunk.slot, chunk.generation)
        check_chunk(record, chunk, self._grid)
        tokens = list(token_ids(chunk.token_ids, self._vocab_size, self._grid, "token_ids"))
        following = whole(chunk.next_token_id, 0, self._vocab_size - 1, "next_token_id")
        self._begin(_INDEXED_ELSE)
        sequence = self._sequences[chunk.slot]
        if sequence.uses_mtp:
            # The last row of a prompt is left to the first cycle, which drafts from it.
            after = [*tokens[1:], following] if not chunk.is_last else tokens[1:]
            self._pending = _PromptRows(chunk.slot, chunk.start, after)
        if sequence.text is not None:
            sequence.text.add_prompt(tokens)
        record.length += len(tokens)
        if chunk.is_last:
            record.is_prefilled, sequence.root = True, following
        return message

    def cycle(self, message: StageMessage) -> StageMessage:
        """Write the tree of each sequence into the message, and its tables to the device."""
        parts = list(message.cycle.sequences)
        sequences = self._checked(parts)
        self._begin(_INDEXED_A_CYCLE)
        for sequence, part in zip(sequences, parts, strict=True):
            self._take_emitted(sequence, part)
        start = time.perf_counter()
        marginals = self._draft(sequences, parts)
        middle = time.perf_counter()
        for sequence, part, found in zip(sequences, parts, marginals, strict=True):
            self._publish(sequence, part, self._tree(sequence, part, found))
        self._counts["mtp_us"] += int((middle - start) * 1e6)
        self._counts["tree_us"] += int((time.perf_counter() - middle) * 1e6)
        return message

    def release(self, message: StageMessage) -> StageMessage:
        """End a sequence; its tokens may help its tenant's later requests."""
        release = message.release
        record = self.slots.release(release.slot, release.generation)
        sequence = self._sequences.pop(release.slot)
        if self._pending is not None and self._pending.slot == release.slot:
            self._pending = None
        if release.keep_suffix and sequence.text is not None:
            self._tenants.add(record.drafting.tenant, sequence.text.finished())
        self._begin(_INDEXED_ELSE)
        return message

    def _begin(self, num_indexed: int) -> None:
        """Store the pending prompt rows before the verifier overwrites their hidden states."""
        rows, self._pending = self._pending, None
        if rows is not None and self._passes is not None:
            self._passes.store_prompt(rows.token_ids, rows.slot, rows.start)
        self._tenants.take_in(num_indexed)

    def _text(self, record: SlotRecord) -> RequestText:
        slot = record.ref.slot
        if slot not in self._texts:
            self._texts[slot] = RequestText(self._context)
        self._texts[slot].start(record.drafting.tenant, self._tenants)
        return self._texts[slot]

    def _checked(self, parts: Sequence[CycleSequence]) -> list[DraftedSequence]:
        """Return the sequences of a slab; nothing is changed before every part is checked."""
        if not 1 <= len(parts) <= MAX_SLAB or len({part.slot for part in parts}) != len(parts):
            text = f"{len(parts)} parts; from 1 to {MAX_SLAB}, each slot once"
            raise InvalidField("SLAB", text, "cycle.sequences")
        sequences = []
        for part in parts:
            record = self.slots.get(part.slot, part.generation)
            gained = len(part.previous_emitted_ids)
            check_cycle(replace(record, length=record.length + gained), part)
            sequence = self._sequences[part.slot]
            sequence.check_tokens(part, self._vocab_size)
            sequences.append(sequence)
        return sequences

    def _take_emitted(self, sequence: DraftedSequence, part: CycleSequence) -> None:
        emitted = part.previous_emitted_ids
        sequence.num_emitted += len(emitted)
        if sequence.shape.is_adaptive and sequence.last is not None:
            learn(sequence.last, emitted, sequence.calibration)
        if sequence.text is not None:
            sequence.text.add_emitted(emitted if emitted else [part.root_id])

    def _draft(
        self, sequences: Sequence[DraftedSequence], parts: Sequence[CycleSequence]
    ) -> list[Marginals]:
        """Run the MTP passes of those sequences that use them, as one batch."""
        found = [Marginals() for _ in sequences]
        rows: list[NewRows] = []
        places: list[int] = []
        for place, (sequence, part) in enumerate(zip(sequences, parts, strict=True)):
            depth = sequence.max_depth(part.committed_length, self._context)
            new = sequence.new_rows(part, depth) if sequence.uses_mtp else None
            if new is not None:
                rows.append(new)
                places.append(place)
        if rows and self._passes is not None:
            num_ranks = max(sequences[place].shape.num_ranks for place in places)
            for place, drafted in zip(places, self._passes.run(rows, num_ranks), strict=True):
                found[place] = drafted
        return found

    def _tree(self, sequence: DraftedSequence, part: CycleSequence, found: Marginals) -> Draft:
        root, shape = part.root_id, sequence.shape
        if part.forced_ids:
            return Draft.chain(root, part.forced_ids, NodeSource.FORCED)
        if sequence.probe is not None:
            draft = sequence.probe.draft(shape, root, part.cycle, sequence.num_emitted)
        elif shape.is_adaptive:
            draft = Growth(sequence.text, found, sequence.calibration, self._row_cost).run(root)
        else:
            draft = fill_shape(shape, root, found, sequence.text)
        return trimmed(draft, sequence.max_depth(part.committed_length, self._context))

    def _publish(self, sequence: DraftedSequence, part: CycleSequence, draft: Draft) -> None:
        tree, slot = draft.tree(), part.slot
        host = self._host_tables[slot]
        build_tables(tree, part.committed_length, slot, part.cycle, host.numpy())
        self._tables[slot].copy_(host, non_blocking=True)
        part.tree.CopyFrom(tree_to_proto(tree, sequence.tag(self.guard.epoch, part)))
        sequence.advance(part, draft)
        self._counts["drafted_nodes"] += tree.num_nodes - 1
