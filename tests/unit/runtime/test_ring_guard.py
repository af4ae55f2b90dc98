"""The ring's guard: wiring, order, slots, chunks and cycles."""

import pytest

from services.contract import pb
from services.contract.errors import (
    ContractError,
    DuplicateError,
    InvalidField,
    RepeatedCycleError,
    StaleEpochError,
    StaleSlotError,
)
from services.contract.sampling import (
    Budget,
    Drafting,
    SamplingParams,
    budget_to_proto,
    drafting_to_proto,
    sampling_to_proto,
)
from services.runtime.ring_guard import (
    RingGuard,
    SlotRecord,
    SlotTable,
    check_chunk,
    check_slab,
)
from services.runtime.stage import StageMessage


def admit(slot: int = 0, generation: int = 1, prompt_length: int = 10) -> pb.stage_pb2.Admit:
    return pb.stage_pb2.Admit(
        request_id="r",
        choice_index=0,
        slot=slot,
        generation=generation,
        prompt_length=prompt_length,
        sampling=sampling_to_proto(SamplingParams()),
        budget=budget_to_proto(Budget(8, context_length=64)),
        drafting=drafting_to_proto(Drafting()),
    )


def test_messages_are_taken_once_in_order() -> None:
    guard = RingGuard(4)
    guard.accept(StageMessage(epoch=4, sequence_number=1))
    for number in (1, 3, 0):
        with pytest.raises(RepeatedCycleError):
            guard.accept(StageMessage(epoch=4, sequence_number=number))
    for epoch in (3, 5):
        with pytest.raises(StaleEpochError):
            guard.accept(StageMessage(epoch=epoch, sequence_number=2))
    guard.accept(StageMessage(epoch=4, sequence_number=2))


def test_a_refused_message_counts_unless_its_number_was_refused() -> None:
    guard = RingGuard(4)
    guard.pass_on(StageMessage(epoch=4, sequence_number=1))
    guard.pass_on(StageMessage(epoch=4, sequence_number=1))
    guard.pass_on(StageMessage(epoch=3, sequence_number=2))
    guard.accept(StageMessage(epoch=4, sequence_number=2))


def test_a_slot_has_one_sequence_of_a_newer_generation() -> None:
    table = SlotTable(2)
    table.admit(admit(generation=3))
    with pytest.raises(DuplicateError):
        table.admit(admit(generation=4))
    with pytest.raises(InvalidField, match="the stage has 2"):
        table.admit(admit(slot=2))
    with pytest.raises(StaleSlotError):
        table.get(0, 2)
    table.release(0, 3)
    for generation in (1, 3):
        with pytest.raises(StaleSlotError):
            table.admit(admit(generation=generation))
    with pytest.raises(StaleSlotError):
        table.release(0, 3)
    table.admit(admit(generation=4))


def test_prompt_longer_than_its_context_is_refused() -> None:
    with pytest.raises(InvalidField, match="prompt tokens"):
        SlotTable(1).admit(admit(prompt_length=65))


CHUNKS = {
    "other start": (0, 4, False, RepeatedCycleError),
    "off the grid": (4, 3, False, InvalidField),
    "too long": (4, 5, False, InvalidField),
    "ends early": (4, 4, True, InvalidField),
    "ends late": (8, 1, False, InvalidField),
}


def record_at(length: int) -> SlotRecord:
    record = SlotTable(1).admit(admit())
    record.length = length
    return record


@pytest.mark.parametrize("name", CHUNKS)
def test_chunk_that_does_not_continue_the_prompt_is_refused(name: str) -> None:
    start, count, is_last, error = CHUNKS[name]
    length = start if name != "other start" else 4
    chunk = pb.stage_pb2.PrefillChunk(start=start, token_ids=[1] * count, is_last=is_last)
    with pytest.raises(error):
        check_chunk(record_at(length), chunk, 4)


def test_chunks_of_a_prompt_are_taken() -> None:
    for start, count, is_last in ((0, 4, False), (4, 4, False), (8, 1, True)):
        chunk = pb.stage_pb2.PrefillChunk(start=start, token_ids=[1] * count, is_last=is_last)
        check_chunk(record_at(start), chunk, 4)


def slab(table: SlotTable, **changes: int) -> list[SlotRecord]:
    part = {"slot": 0, "generation": 1, "cycle": 2, "committed_length": 9, **changes}
    return check_slab(table, pb.stage_pb2.Cycle(sequences=[pb.stage_pb2.CycleSequence(**part)]))


@pytest.fixture
def table() -> SlotTable:
    made = SlotTable(5)
    record = made.admit(admit())
    record.length, record.cycle, record.is_prefilled = 9, 2, True
    return made


@pytest.mark.parametrize(
    "changes", [{"cycle": 1}, {"cycle": 3}, {"committed_length": 8}, {"generation": 2}, {"slot": 1}]
)
def test_cycle_that_is_not_the_next_is_refused(table: SlotTable, changes: dict[str, int]) -> None:
    assert slab(table)
    with pytest.raises(ContractError):
        slab(table, **changes)


def test_slab_is_bounded_and_names_a_slot_once(table: SlotTable) -> None:
    part = pb.stage_pb2.CycleSequence(slot=0, generation=1, cycle=2, committed_length=9)
    for count in (0, 2, 5):
        with pytest.raises(InvalidField):
            check_slab(table, pb.stage_pb2.Cycle(sequences=[part] * count))


def test_cycle_before_the_prompt_ended_is_refused(table: SlotTable) -> None:
    table.get(0, 1).is_prefilled = False
    with pytest.raises(InvalidField, match="last chunk"):
        slab(table)
