"""Stage messages of one sequence or slab, and what their answers hold."""

from __future__ import annotations

from collections.abc import Sequence as Many

from services.contract import pb
from services.contract.errors import InternalError
from services.contract.path import (
    AcceptedPath,
    EmittedLogprobs,
    logprobs_from_proto,
    path_from_proto,
)
from services.contract.sampling import budget_to_proto, drafting_to_proto, sampling_to_proto
from services.contract.span import SlotRef
from services.contract.tree import Tree, tree_from_proto
from services.gateway.sequence import Sequence

StageMessage = pb.stage_pb2.StageMessage


def admit(sequence: Sequence) -> StageMessage:
    """Return the message that gives a sequence its slot in every stage."""
    request, slot = sequence.request, _slot(sequence)
    return StageMessage(
        admit=pb.stage_pb2.Admit(
            request_id=request.request_id,
            choice_index=request.choice_index,
            slot=slot.slot,
            generation=slot.generation,
            prompt_length=len(request.prompt_ids),
            sampling=sampling_to_proto(request.sampling),
            budget=budget_to_proto(request.budget),
            drafting=drafting_to_proto(request.drafting),
            wants_digest=request.wants_digest,
        )
    )


def prefill(sequence: Sequence, grid: int) -> StageMessage:
    """Return the sequence's next chunk; tokens 0..n-2 are chunked, n-1 is the first root."""
    prompt, start, slot = sequence.request.prompt_ids, sequence.done, _slot(sequence)
    end = min(start + grid, len(prompt) - 1)
    return StageMessage(
        prefill=pb.stage_pb2.PrefillChunk(
            slot=slot.slot,
            generation=slot.generation,
            start=start,
            token_ids=prompt[start:end],
            next_token_id=prompt[end],
            is_last=end == len(prompt) - 1,
            new_pages=sequence.pages if start == 0 else (),
        )
    )


def cycle(slab: Many[Sequence]) -> StageMessage:
    """Return the message of one round of every sequence of a slab."""
    return StageMessage(cycle=pb.stage_pb2.Cycle(sequences=[_cycle_part(s) for s in slab]))


def _cycle_part(sequence: Sequence) -> pb.stage_pb2.CycleSequence:
    slot = _slot(sequence)
    return pb.stage_pb2.CycleSequence(
        slot=slot.slot,
        generation=slot.generation,
        cycle=sequence.cycle,
        committed_length=sequence.committed_length,
        root_id=sequence.root_id,
        previous_emitted_ids=sequence.previous_emitted,
    )


def release(sequence: Sequence) -> StageMessage:
    """Return the message that ends a sequence in every stage."""
    slot = _slot(sequence)
    return StageMessage(
        release=pb.stage_pb2.Release(
            slot=slot.slot, generation=slot.generation, keep_suffix=not sequence.cancelled
        )
    )


def read_result(
    part: pb.stage_pb2.SequenceResult, vocab_size: int, epoch: int
) -> tuple[AcceptedPath, Tree, tuple[EmittedLogprobs, ...]]:
    """Return the checked path, tree and log-probabilities of one sequence's result."""
    path, _ = path_from_proto(part.path, vocab_size, epoch)
    tree, _ = tree_from_proto(part.tree, vocab_size, epoch)
    return path, tree, logprobs_from_proto(part.path.logprobs, vocab_size)


def _slot(sequence: Sequence) -> SlotRef:
    if sequence.slot is None:
        text = f"sequence of request {sequence.request.request_id} has no slot"
        raise InternalError("NO_SLOT", text)
    return sequence.slot
