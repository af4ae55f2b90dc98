"""The real verifier and committer behind a drafter whose trees the test chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from services.committer.digest import state_digest
from services.committer.stage import CommitterStage
from services.contract import pb
from services.contract.config import EngineConfig
from services.contract.limits import PAGE, TABLE_WORDS
from services.contract.sampling import (
    Budget,
    Drafting,
    SamplingParams,
    budget_to_proto,
    drafting_to_proto,
    sampling_to_proto,
)
from services.contract.tree import Tree, TreeTag, tree_to_proto
from services.kernels.tree_tables import build_tables
from services.model.checkpoint import Checkpoint
from services.model.config import ModelConfig
from services.model.weights import TargetWeights, load_target
from services.runtime.buffers import Arenas, make_arenas, model_dtype
from services.runtime.local import LocalGroup
from services.runtime.ring_guard import check_chunk
from services.runtime.stage import Stage, StageMessage
from services.verifier.stage import VerifierStage

EPOCH = 5
Draft = Callable[[pb.stage_pb2.CycleSequence], Tree]


def root_only(part: pb.stage_pb2.CycleSequence) -> Tree:
    """Draft nothing."""
    return Tree.root_only(part.root_id)


class ChosenDrafter(Stage):
    """Draft whatever the test's function returns."""

    name = "drafter"

    def __init__(self, arenas: Arenas, config: EngineConfig, epoch: int) -> None:
        super().__init__(epoch, config.max_sequences)
        self.draft: Draft = root_only
        self._tables = arenas.drafter["tree_tables"]
        self._grid = config.prefill_grid

    def warmup(self) -> None:
        """Nothing to prepare."""

    def close(self) -> None:
        """Nothing to drop."""

    def admit(self, message: StageMessage) -> StageMessage:
        """Remember the sequence."""
        self.slots.admit(message.admit)
        return message

    def prefill(self, message: StageMessage) -> StageMessage:
        """Check the chunk as every stage does."""
        chunk = message.prefill
        record = self.slots.get(chunk.slot, chunk.generation)
        check_chunk(record, chunk, self._grid)
        record.length += len(chunk.token_ids)
        return message

    def release(self, message: StageMessage) -> StageMessage:
        """Forget the sequence."""
        self.slots.release(message.release.slot, message.release.generation)
        return message

    def cycle(self, message: StageMessage) -> StageMessage:
        """Set the tree of every sequence, and its tables."""
        for part in message.cycle.sequences:
            record = self.slots.get(part.slot, part.generation)
            tree = self.draft(part)
            tag = TreeTag(
                record.request_id,
                record.choice_index,
                self.guard.epoch,
                part.cycle,
                part.committed_length,
                part.slot,
                part.generation,
            )
            where = part.committed_length, part.slot, part.cycle
            words = np.zeros(TABLE_WORDS, np.int32)
            build_tables(tree, *where, words)
            self._tables[part.slot].copy_(torch.from_numpy(words))
            part.tree.CopyFrom(tree_to_proto(tree, tag))
        return message


@dataclass
class Row:
    """What a gateway would remember of one sequence."""

    slot: int
    generation: int
    root: int
    length: int
    cycle: int = 0
    emitted: list[int] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)


class Ring:
    """Drive the stages of one checkpoint by stage messages alone."""

    def __init__(
        self,
        folder: Path,
        slots: int = 2,
        context: int = 512,
        grid: int = 64,
        poison: bool = False,
        num_pages: int = 0,
        device: str = "cpu",
        loaded: tuple[ModelConfig, TargetWeights] | None = None,
    ) -> None:
        self.config = EngineConfig(
            model=str(folder),
            device=device,
            max_sequences=slots,
            context_length=context,
            prefill_grid=grid,
            num_pages=num_pages,
            threads=1,
        )
        self.model, weights = loaded or self._load(folder)
        self.arenas = make_arenas(self.model, self.config)
        if poison:
            for arena in (self.arenas.verifier, self.arenas.drafter, self.arenas.committer):
                arena.poison()
        self.drafter = ChosenDrafter(self.arenas, self.config, EPOCH)
        self.verifier = VerifierStage(self.model, weights, self.arenas, self.config, EPOCH)
        self.committer = CommitterStage(weights, self.arenas, self.config, EPOCH)
        stages = self.drafter, self.verifier, self.committer
        self.group = LocalGroup(self.model, stages, EPOCH)
        self.rows: dict[int, Row] = {}
        self.wants_digest = True
        self._generations = [0] * slots

    def _load(self, folder: Path) -> tuple[ModelConfig, TargetWeights]:
        checkpoint, dtype = Checkpoint.open(folder), model_dtype(self.config)
        return checkpoint.config, load_target(checkpoint, dtype, self.config.device)

    def start(
        self,
        slot: int,
        prompt: list[int],
        sampling: SamplingParams | None = None,
        budget: Budget | None = None,
        drafting: Drafting | None = None,
    ) -> Row:
        """Admit a sequence and prefill its prompt."""
        self._generations[slot] += 1
        generation = self._generations[slot]
        budget = budget or Budget(256, context_length=self.config.context_length)
        admit = pb.stage_pb2.Admit(
            request_id=f"r{slot}",
            choice_index=0,
            slot=slot,
            generation=generation,
            prompt_length=len(prompt),
            sampling=sampling_to_proto(sampling or SamplingParams()),
            budget=budget_to_proto(budget),
            drafting=drafting_to_proto(drafting or Drafting()),
            wants_digest=self.wants_digest,
        )
        self.ask(StageMessage(admit=admit))
        grid, last = self.config.prefill_grid, len(prompt) - 1
        for start in range(0, max(last, 1), grid):
            end = min(start + grid, last)
            self.ask(StageMessage(prefill=self._chunk(slot, prompt, start, end)))
        self.rows[slot] = Row(slot, generation, prompt[-1], last)
        return self.rows[slot]

    def cycle(self, *slots: int) -> list[pb.stage_pb2.SequenceResult]:
        """Run one round of some sequences."""
        reply = self.ask(self.message(*slots))
        for result in reply.result.sequences:
            row = self.rows[result.path.slot]
            row.root, row.length = result.path.pending_id, result.path.committed_length
            row.previous = list(result.path.emitted_ids)
            row.emitted += row.previous
            row.cycle += 1
        return list(reply.result.sequences)

    def message(self, *slots: int) -> StageMessage:
        """Return the message of the next round of some sequences."""
        cycle = pb.stage_pb2.Cycle()
        for slot in slots or tuple(self.rows):
            row = self.rows[slot]
            cycle.sequences.add(
                slot=slot,
                generation=row.generation,
                cycle=row.cycle,
                committed_length=row.length,
                root_id=row.root,
                previous_emitted_ids=row.previous,
            )
        return StageMessage(cycle=cycle)

    def release(self, slot: int) -> None:
        """End a sequence."""
        row = self.rows.pop(slot)
        message = pb.stage_pb2.Release(slot=slot, generation=row.generation, keep_suffix=False)
        self.ask(StageMessage(release=message))

    def rewire(self) -> None:
        """Wire the stages anew under the next epoch, as after a stage's death."""
        epoch = self.group.epoch + 1
        for stage in self.group.stages:
            stage.rewire(epoch)
        self.group = LocalGroup(self.model, self.group.stages, epoch)

    def ask(self, message: StageMessage) -> StageMessage:
        """Send a message that must not be refused."""
        reply = self.group.send(message)
        if reply.WhichOneof("body") == "failure":
            raise AssertionError(str(reply.failure))
        return reply

    def digest(self, slot: int) -> bytes:
        """Return the digest of a slot's target state."""
        return state_digest(self.arenas.verifier, slot)

    def _chunk(
        self, slot: int, prompt: list[int], start: int, end: int
    ) -> pb.stage_pb2.PrefillChunk:
        per_slot = self.config.context_length // PAGE
        return pb.stage_pb2.PrefillChunk(
            slot=slot,
            generation=self._generations[slot],
            start=start,
            token_ids=prompt[start:end],
            next_token_id=prompt[end],
            is_last=end == len(prompt) - 1,
            new_pages=range(slot * per_slot, (slot + 1) * per_slot) if start == 0 else (),
        )
