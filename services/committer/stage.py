"""The committer stage: publishes the accepted paths of a slab and answers the gateway."""

from __future__ import annotations

from functools import partial

import torch

from services.committer.check import NO_ROOT
from services.committer.digest import state_digest
from services.committer.publish import (
    STEPS,
    Order,
    Publication,
    Step,
    cut_and_fetch,
    run_ordered,
    run_published,
    run_steps,
)
from services.committer.result import accepted_path, emitted_logprobs
from services.contract import pb
from services.contract.config import EngineConfig
from services.contract.limits import MAX_SLAB
from services.contract.path import AcceptedPath, path_to_proto
from services.contract.tree import TreeTag
from services.model.weights import TargetWeights
from services.runtime.buffers import Arenas
from services.runtime.graphs import Graphs, Mirror
from services.runtime.ring_guard import SlotRecord, check_chunk, check_slab
from services.runtime.stage import Stage, StageMessage


class CommitterStage(Stage):
    """Publish accepted paths: all five steps and the flip, or nothing.

    Args    is_ordered: the verifier's memory may not be written here; `order` then has the
            steps that write it launched in the verifier's process.
    """

    name = "committer"

    def __init__(
        self,
        weights: TargetWeights,
        arenas: Arenas,
        config: EngineConfig,
        epoch: int,
        is_ordered: bool = False,
    ) -> None:
        super().__init__(epoch, arenas.verifier["words"].shape[0])
        self.steps: dict[str, Step] = dict(STEPS)
        self.order: Order = _refuse_order
        self._is_ordered = is_ordered
        self._weights = weights
        self._arenas = arenas
        self._grid = config.prefill_grid
        own, device = arenas.committer, arenas.verifier["words"].device
        self.graphs = Graphs(device)
        self._slots = Mirror(torch.zeros(MAX_SLAB, dtype=torch.int32, device=device))
        self._accepted, self._roots = Mirror(own["accepted"]), Mirror(own["next_root"])
        self._words = Mirror(arenas.verifier["words"])
        self._counts |= {"published": 0, "emitted": 0}

    def warmup(self) -> None:
        """Run the steps once for each slab size, unchecked, on paths that hold nothing."""
        if self._arenas.committer.storage.is_cuda:
            for batch in range(1, min(MAX_SLAB, self.slots.num_slots) + 1):
                job = self._publication(pb.stage_pb2.Cycle(), tuple(range(batch)))
                self.graphs.run(("accept", batch), partial(cut_and_fetch, job))
                if self._is_ordered:
                    self.graphs.run(("next_root", batch), partial(self.steps["next_root"], job))
                else:
                    run_published(job, self.steps)

    def admit(self, message: StageMessage) -> StageMessage:
        """Expect a sequence whose first root is not known here."""
        record = self.slots.admit(message.admit)
        self._arenas.committer["next_root"][record.ref.slot] = NO_ROOT
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
        job = self._publication(message.cycle, tuple(record.ref.slot for record in records))
        if self._is_ordered:
            run_ordered(job, self.steps, self.order)
        else:
            run_steps(job, self.steps)
        reply = _answer(message)
        for record, part in zip(records, message.cycle.sequences, strict=True):
            path = self._take(record, self._accepted.host[record.ref.slot].tolist())
            reply.result.sequences.add(tree=part.tree, path=path)
        return reply

    def close(self) -> None:
        """Drop the references to device memory."""
        self.graphs.clear()
        del self._accepted, self._roots, self._words, self._slots
        del self._arenas, self._weights

    def _publication(self, cycle: pb.stage_pb2.Cycle, slots: tuple[int, ...]) -> Publication:
        self._slots.write(slots)
        return Publication(
            self._arenas,
            self._weights.a_log,
            self._weights.dt_bias,
            self._slots,
            slots,
            self._accepted,
            self._words,
            self._roots,
            tuple(part.tree for part in cycle.sequences),
            self.graphs,
        )

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


def _refuse_order(slots: tuple[int, ...]) -> None:
    text = f"{len(slots)} publications have nobody to order from; wire the stage"
    raise RuntimeError(text)


def _answer(message: StageMessage) -> StageMessage:
    return StageMessage(
        epoch=message.epoch,
        sequence_number=message.sequence_number,
        spans=message.spans,
        result=pb.stage_pb2.Result(),
    )
