"""The committer stage: publishes the accepted paths of a slab and answers the gateway."""

from __future__ import annotations

from typing import Final

import torch

from services.committer.digest import state_digest
from services.committer.publish import STEPS, Publication, Step, run_steps
from services.committer.result import accepted_path, emitted_logprobs, refuse_untaken
from services.contract import pb
from services.contract.path import AcceptedPath, path_to_proto
from services.contract.tree import TreeTag
from services.kernels.accept import (
    CONTEXT_LENGTH,
    END_LENGTH,
    EOS_IDS,
    NUM_EOS,
    NUM_STOP,
    STOP_IDS,
    VOCAB_SIZE,
)
from services.model.config import ModelConfig
from services.model.weights import TargetWeights
from services.runtime.buffers import Arenas
from services.runtime.ring_guard import SlotRecord, check_chunk, check_slab
from services.runtime.stage import Stage, StageMessage

_MOVES: Final = tuple(name for name in STEPS if name != "accept")


class CommitterStage(Stage):
    """Publish accepted paths: all five steps and the flip, or nothing.

    Args    steps: the named steps; a fault test replaces one.
    """

    name = "committer"

    def __init__(
        self,
        model: ModelConfig,
        weights: TargetWeights,
        arenas: Arenas,
        epoch: int,
        prefill_grid: int,
    ) -> None:
        super().__init__(epoch, arenas.verifier["words"].shape[0])
        self.steps: dict[str, Step] = dict(STEPS)
        self._model = model
        self._weights = weights
        self._arenas = arenas
        self._grid = prefill_grid
        self._counts |= {"published": 0, "emitted": 0}

    def warmup(self) -> None:
        """Launch every step on slots that hold nothing, so that kernels are compiled."""
        slots = torch.zeros(1, dtype=torch.int32, device=self._arenas.committer.storage.device)
        job = self._publication(slots)
        self._arenas.committer["next_root"].fill_(-1)
        run_steps(job, STEPS, tuple(STEPS))

    def admit(self, message: StageMessage) -> StageMessage:
        """Keep what ends the sequence where the device cut reads it."""
        record = self.slots.admit(message.admit)
        slot = record.ref.slot
        row = limits_row(record, self._model.vocab_size)
        limits = self._arenas.committer["limits"]
        limits[slot, : len(row)] = torch.tensor(row, dtype=torch.int32)
        self._arenas.committer["next_root"][slot] = -1
        return _answer(message)

    def prefill(self, message: StageMessage) -> StageMessage:
        """Count the prompt tokens that the verifier materialised."""
        chunk = message.prefill
        record = self.slots.get(chunk.slot, chunk.generation)
        check_chunk(record, chunk, self._grid)
        record.length += len(chunk.token_ids)
        record.is_prefilled = chunk.is_last
        return _answer(message)

    def release(self, message: StageMessage) -> StageMessage:
        """Forget the sequence."""
        self.slots.release(message.release.slot, message.release.generation)
        return _answer(message)

    def cycle(self, message: StageMessage) -> StageMessage:
        """Publish the paths of a slab and return them."""
        records = check_slab(self.slots, message.cycle)
        slots = torch.tensor([record.ref.slot for record in records], dtype=torch.int32)
        job = self._publication(slots.to(self._arenas.committer.storage.device))
        run_steps(job, self.steps, ("accept",))
        rows = self._arenas.committer["accepted"][slots.long()].tolist()
        refuse_untaken(rows)
        run_steps(job, self.steps, _MOVES)
        reply = _answer(message)
        for record, row, part in zip(records, rows, message.cycle.sequences, strict=True):
            result = reply.result.sequences.add(tree=part.tree)
            result.path.CopyFrom(self._take(record, row))
        return reply

    def close(self) -> None:
        """Drop the references to device memory."""
        del self._arenas, self._weights

    def _publication(self, slots: torch.Tensor) -> Publication:
        weights = self._weights
        return Publication(self._arenas, weights.a_log, weights.dt_bias, slots)

    def _take(self, record: SlotRecord, row: list[int]) -> pb.path_pb2.AcceptedPath:
        """Advance the books of one sequence and return its path's message."""
        path = accepted_path(row, record.length)
        tag = self._tag(record)
        digest = b""
        if record.wants_digest:
            digest = state_digest(self._arenas.verifier, record.ref.slot)
        logprobs = emitted_logprobs(self._arenas.verifier, record, path)
        self._count(record, path)
        return path_to_proto(path, tag, digest, logprobs)

    def _tag(self, record: SlotRecord) -> TreeTag:
        return TreeTag(
            record.request_id,
            record.choice_index,
            self.guard.epoch,
            record.cycle,
            record.length,
            record.ref.slot,
            record.ref.generation,
        )

    def _count(self, record: SlotRecord, path: AcceptedPath) -> None:
        record.length = path.committed_length
        record.cycle += 1
        self._counts["published"] += 1
        self._counts["emitted"] += len(path.emitted_ids)


def limits_row(record: SlotRecord, vocab_size: int) -> list[int]:
    """Return the words that say where a sequence ends (kernels.accept)."""
    budget = record.budget
    row = [0] * (STOP_IDS + len(budget.stop_ids))
    row[END_LENGTH] = record.prompt_length - 1 + budget.max_tokens
    row[CONTEXT_LENGTH] = budget.context_length
    row[NUM_EOS], row[NUM_STOP] = len(budget.eos_ids), len(budget.stop_ids)
    row[VOCAB_SIZE] = vocab_size
    row[EOS_IDS : EOS_IDS + len(budget.eos_ids)] = budget.eos_ids
    row[STOP_IDS:] = budget.stop_ids
    return row


def _answer(message: StageMessage) -> StageMessage:
    return StageMessage(
        epoch=message.epoch,
        sequence_number=message.sequence_number,
        spans=message.spans,
        result=pb.stage_pb2.Result(),
    )
