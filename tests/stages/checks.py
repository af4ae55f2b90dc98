"""What every stage must do behind its socket, whatever its work is."""

from __future__ import annotations

from functools import cache

import pytest

from services.contract import pb
from services.contract.errors import ContractError
from services.runtime.stage import StageMessage
from tests.drafts import KnownDraft, plain_run
from tests.ring import EPOCH, Ring, root_only
from tests.stages.rig import StageRig

_EARLY = (
    ("export", ("x", 1, "cpu_shm")),
    ("wire", (1, [], "")),
    ("prepare", ()),
    ("connect", ("x",)),
)
PROMPT = [5, 17, 40, 3, 96, 12, 55, 71, 8]
TOKENS = 40


@cache
def known(plain: Ring) -> tuple[dict[int, bytes], list[int]]:
    """Return the digest at every length and the tokens of plain decoding."""
    digests = plain_run(plain, PROMPT, TOKENS + 16)
    truth = list(plain.rows[0].emitted)
    plain.release(0)
    return digests, truth


def refusal(rig: StageRig, message: StageMessage) -> str:
    """Return the name of the contract error in a stage's answer."""
    reply = rig.hosted.step(message)
    assert reply.WhichOneof("body") == "failure", reply
    assert reply.failure.message
    return str(reply.failure.reason)


def numbered(rig: StageRig, message: StageMessage, epoch: int = 0, ahead: int = 1) -> StageMessage:
    """Return a message with the ring's epoch and the number `ahead` of the last one."""
    message.epoch = epoch or rig.group.epoch
    message.sequence_number = rig.group._sequence_number + ahead
    return message


def runs_as_plain(rig: StageRig, plain: Ring, drafts: KnownDraft | None = None) -> None:
    """Run one sequence through the ring; tokens and digests must be the plain ones."""
    digests, truth = known(plain)
    row = rig.start(0, PROMPT)
    if drafts is not None:
        drafts.truth = {0: list(truth)}
        rig.drafter.draft = drafts
    num_cycles = 0
    while len(row.emitted) < TOKENS:
        (result,) = rig.cycle(0)
        num_cycles += 1
        assert result.path.digest == digests[row.length]
        assert result.path.digest == rig.digest(0)
    assert row.emitted == truth[: len(row.emitted)]
    assert num_cycles < TOKENS or drafts is None
    rig.drafter.draft = root_only
    rig.release(0)


def refuses_wrong_messages(rig: StageRig) -> None:
    """Send what no gateway may send; each is refused by name and changes nothing."""
    row = rig.start(0, PROMPT)
    rig.cycle(0)
    before, words = rig.digest(0), rig.arenas.verifier["words"].clone()
    wrong = [
        ("StaleEpochError", numbered(rig, rig.message(0), epoch=EPOCH - 1)),
        ("StaleEpochError", numbered(rig, rig.message(0), epoch=1 << 62)),
        ("RepeatedCycleError", numbered(rig, rig.message(0), ahead=0)),
        ("RepeatedCycleError", numbered(rig, rig.message(0), ahead=2)),
    ]
    for error, message in wrong:
        assert refusal(rig, message) == error
    malformed = rig.hosted.raw(b"\xff" * 64)
    assert malformed.failure.reason == "InvalidField"
    assert rig.digest(0) == before
    assert (rig.arenas.verifier["words"] == words).all()
    rig.cycle(0)
    assert row.cycle == 2
    rig.release(0)


def refuses_wrong_sequences(rig: StageRig) -> None:
    """Send numbered messages about sequences that are not there or not due."""
    row = rig.start(0, PROMPT)
    rig.cycle(0)
    stale = pb.stage_pb2.Release(slot=0, generation=row.generation + 1)
    assert through(rig, StageMessage(release=stale)) == "StaleSlotError"
    repeated = rig.message(0)
    repeated.cycle.sequences[0].cycle = row.cycle - 1
    assert through(rig, repeated) in ("RepeatedCycleError", "InvalidField")
    empty = StageMessage(cycle=pb.stage_pb2.Cycle())
    assert through(rig, empty) == "InvalidField"
    chunk = pb.stage_pb2.PrefillChunk(slot=0, generation=row.generation, start=64)
    assert through(rig, StageMessage(prefill=chunk)) == "RepeatedCycleError"
    rig.cycle(0)
    rig.release(0)


def through(rig: StageRig, message: StageMessage) -> str:
    """Send a message to the tested stage alone, in the ring's numbering; return its error."""
    before = rig.digest(0)
    name = refusal(rig, numbered(rig, message))
    for stage in rig.group.stages:
        if stage is not rig.hosted:
            stage.guard.last += 1
    rig.group._sequence_number += 1
    assert rig.digest(0) == before
    return name


def restarts_and_rewires(rig: StageRig, plain: Ring) -> None:
    """Kill the stage; under the next epoch it serves, and the old epoch is refused."""
    rig.start(0, PROMPT)
    rig.cycle(0)
    epoch = rig.group.epoch
    rig.hosted.kill()
    rig.wire(epoch + 1)
    old = rig.message() if rig.rows else StageMessage(cycle=pb.stage_pb2.Cycle())
    assert refusal(rig, numbered(rig, old, epoch=epoch)) == "StaleEpochError"
    runs_as_plain(rig, plain)


def rewires_alive(rig: StageRig, plain: Ring) -> None:
    """Wire a live stage anew: the same process serves, and its old sequences are gone."""
    row = rig.start(0, PROMPT)
    before = rig.hosted.call("status")["pid"]
    rig.wire(rig.group.epoch + 1)
    gone = pb.stage_pb2.Release(slot=0, generation=row.generation)
    assert refusal(rig, numbered(rig, StageMessage(release=gone))) == "StaleSlotError"
    for stage in rig.group.stages:
        if stage is not rig.hosted:
            stage.guard.last += 1
    rig.group._sequence_number += 1
    assert rig.hosted.call("status")["pid"] == before
    runs_as_plain(rig, plain)


def refuses_calls_out_of_order(kind: type) -> None:
    """Call control methods before what they need."""
    host = kind()
    for method, arguments in _EARLY:
        with pytest.raises(ContractError):
            getattr(host, method)(*arguments)
