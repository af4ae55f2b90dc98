"""What every stage checks of a message: wiring, order, and whose slot it names."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.contract import pb
from services.contract.errors import (
    ContractError,
    DuplicateError,
    InvalidField,
    RepeatedCycleError,
    StaleEpochError,
    StaleSlotError,
)
from services.contract.failure import failure_from_error
from services.contract.limits import MAX_SLAB
from services.contract.sampling import (
    Budget,
    Drafting,
    SamplingParams,
    budget_from_proto,
    drafting_from_proto,
    sampling_from_proto,
)
from services.contract.span import SlotRef

StageMessage = pb.stage_pb2.StageMessage


class RingGuard:
    """Accept the messages of one wiring, each number once and in order, from 1."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last = 0

    def accept(self, message: StageMessage) -> None:
        """Take a message's number.

        Raises  StaleEpochError for another wiring; RepeatedCycleError for a repeat or a gap.
        """
        if message.epoch != self.epoch:
            text = f"epoch {message.epoch}; the stage is wired for {self.epoch}"
            raise StaleEpochError("STALE_EPOCH", text, "epoch")
        number = message.sequence_number
        if number != self.last + 1:
            text = f"message {number} after {self.last}; send {self.last + 1}"
            reason = "REPEATED_MESSAGE" if number <= self.last else "MESSAGE_GAP"
            raise RepeatedCycleError(reason, text, "sequence_number")
        self.last = number

    def pass_on(self, message: StageMessage) -> None:
        """Count a message that an earlier stage refused, unless it refused its number."""
        if message.epoch == self.epoch and message.sequence_number == self.last + 1:
            self.last += 1


def refuse(stage: str, error: ContractError, message: StageMessage) -> StageMessage:
    """Return the answer that says why `stage` refused a message."""
    failure = failure_from_error(stage, error)
    return StageMessage(
        epoch=message.epoch,
        sequence_number=message.sequence_number,
        spans=message.spans,
        failure=failure,
    )


@dataclass(slots=True)
class SlotRecord:
    """What a stage knows of the sequence in a slot.

    Args    length: materialised tokens. cycle: the next cycle. is_prefilled: its last chunk
            was seen.
    """

    ref: SlotRef
    request_id: str
    choice_index: int
    prompt_length: int
    sampling: SamplingParams
    budget: Budget
    drafting: Drafting
    wants_digest: bool
    length: int = 0
    cycle: int = 0
    is_prefilled: bool = False


@dataclass(slots=True)
class SlotTable:
    """The sequences a stage serves, by slot; old references are refused."""

    num_slots: int
    _records: dict[int, SlotRecord] = field(default_factory=dict)
    _generations: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._records)

    def admit(self, message: pb.stage_pb2.Admit) -> SlotRecord:
        """Give a slot to a new sequence.

        Raises  StaleSlotError for a generation that is not newer than the slot's last one,
                DuplicateError for a slot in use, InvalidField for values out of bounds.
        """
        record = _record(message)
        slot, generation = record.ref.slot, record.ref.generation
        if slot >= self.num_slots:
            text = f"slot {slot}; the stage has {self.num_slots}"
            raise InvalidField("SLOT", text, "admit.slot")
        if slot in self._records:
            text = f"slot {slot} is in use; release it first"
            raise DuplicateError("SLOT_IN_USE", text, "admit.slot")
        if generation <= self._generations.get(slot, -1):
            text = f"generation {generation} of slot {slot} is over; use a newer one"
            raise StaleSlotError("STALE_SLOT", text, "admit.generation")
        self._records[slot] = record
        self._generations[slot] = generation
        return record

    def get(self, slot: int, generation: int) -> SlotRecord:
        """Return the sequence in a slot.

        Raises  StaleSlotError unless it is of this generation.
        """
        record = self._records.get(slot)
        if record is None or record.ref.generation != generation:
            text = f"slot {slot} generation {generation} is not admitted; admit it again"
            raise StaleSlotError("STALE_SLOT", text, "generation")
        return record

    def release(self, slot: int, generation: int) -> SlotRecord:
        """Take a slot back from its sequence and return what was known of it."""
        record = self.get(slot, generation)
        del self._records[slot]
        return record


def check_chunk(record: SlotRecord, chunk: pb.stage_pb2.PrefillChunk, grid: int) -> None:
    """Refuse a prompt chunk that does not continue the sequence on the grid.

    Raises  RepeatedCycleError for another start; InvalidField for its size or its end.
    """
    count = len(chunk.token_ids)
    if record.is_prefilled or chunk.start != record.length:
        text = f"chunk starts at {chunk.start}; the sequence holds {record.length} tokens"
        raise RepeatedCycleError("CHUNK_START", text, "prefill.start")
    if count > grid or (count < grid and not chunk.is_last) or chunk.start % grid:
        text = f"{count} tokens from {chunk.start}; chunks are {grid} long, only the last shorter"
        raise InvalidField("CHUNK_GRID", text, "prefill.token_ids")
    if chunk.is_last != (chunk.start + count == record.prompt_length - 1):
        text = f"chunk ends at {chunk.start + count} of {record.prompt_length} prompt tokens"
        raise InvalidField("CHUNK_END", text, "prefill.is_last")


def check_cycle(record: SlotRecord, part: pb.stage_pb2.CycleSequence) -> None:
    """Refuse a cycle that is not the sequence's next one.

    Raises  RepeatedCycleError for another cycle or length; InvalidField before prefill ended.
    """
    if not record.is_prefilled:
        text = f"slot {record.ref.slot} has prompt tokens to come; send its last chunk first"
        raise InvalidField("NOT_PREFILLED", text, "cycle.sequences")
    if part.cycle != record.cycle:
        text = f"cycle {part.cycle}; the next one is {record.cycle}"
        raise RepeatedCycleError("CYCLE", text, "cycle")
    if part.committed_length != record.length:
        text = f"{part.committed_length}; the sequence holds {record.length} tokens"
        raise RepeatedCycleError("COMMITTED_LENGTH", text, "committed_length")


def check_slab(slots: SlotTable, cycle: pb.stage_pb2.Cycle) -> list[SlotRecord]:
    """Return the sequences of a cycle message, each checked.

    Raises  InvalidField for an empty slab, one over the limit, or a slot named twice.
    """
    if not 1 <= len(cycle.sequences) <= MAX_SLAB:
        text = f"{len(cycle.sequences)} sequences; from 1 to {MAX_SLAB}"
        raise InvalidField("SLAB", text, "cycle.sequences")
    records = [slots.get(part.slot, part.generation) for part in cycle.sequences]
    if len({record.ref.slot for record in records}) != len(records):
        raise InvalidField("SLAB", "a slot is named twice; send one part a slot", "cycle.sequences")
    for record, part in zip(records, cycle.sequences, strict=True):
        check_cycle(record, part)
    return records


def _record(message: pb.stage_pb2.Admit) -> SlotRecord:
    sampling = sampling_from_proto(message.sampling)
    budget = budget_from_proto(message.budget)
    if not 1 <= message.prompt_length < budget.context_length + 1:
        text = f"{message.prompt_length} prompt tokens; from 1 to {budget.context_length}"
        raise InvalidField("PROMPT_LENGTH", text, "admit.prompt_length")
    return SlotRecord(
        SlotRef(message.slot, message.generation),
        message.request_id,
        message.choice_index,
        message.prompt_length,
        sampling,
        budget,
        drafting_from_proto(message.drafting),
        message.wants_digest,
    )
