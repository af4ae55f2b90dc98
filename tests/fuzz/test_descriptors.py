"""R7: mutated descriptors give the contract's error and nothing else, in bounded memory."""

import random
import struct
import time
import tracemalloc

import pytest

from services.contract import pb, topology, tree
from services.contract.errors import ContractError
from services.contract.limits import MAX_ROWS, STAGE_MESSAGE_BYTES
from services.contract.wire import parse
from tests.fuzz.hunt import EPOCH, VOCAB_SIZE, Disagreement, hunt
from tests.trees import random_tag, random_tree

REASONS = {
    "ACCEPTED",
    "CHECKSUM",
    "DESCRIPTOR_VERSION",
    "DRAFT_LOGPROB",
    "MALFORMED",
    "MISSING",
    "NODE_SOURCE",
    "OUT_OF_RANGE",
    "PADDING",
    "PARENT_ORDER",
    "PATH_LENGTH",
    "SLOT_BIJECTION",
    "SLOT_ORDER",
    "STALE_EPOCH",
    "TOKEN_OUT_OF_VOCABULARY",
    "TOO_LONG",
    "TREE_COLUMN",
    "TREE_COLUMN_VALUE",
    "TREE_ROOT",
}


def test_mutants_give_only_the_contract_error(seed: int) -> None:
    verdicts = hunt(seed, 50_000)
    assert set(verdicts) >= REASONS, sorted(REASONS - set(verdicts))


@pytest.mark.slow
def test_a_million_mutants_give_only_the_contract_error(seed: int) -> None:
    start = time.perf_counter()
    verdicts = hunt(seed, 1_000_000)
    print(f"1,000,000 mutants in {time.perf_counter() - start:.0f} s: {dict(verdicts)}")
    assert sum(verdicts.values()) == 1_000_000
    assert set(verdicts) >= REASONS


@pytest.mark.parametrize(
    ("owner", "rule"),
    [
        (tree, "_check_derived"),
        (topology, "_check_sources"),
        (topology.Tree, "check_vocabulary"),
    ],
)
def test_hunt_finds_a_validator_that_lacks_a_rule(
    monkeypatch: pytest.MonkeyPatch, seed: int, owner: object, rule: str
) -> None:
    monkeypatch.setattr(owner, rule, lambda *arguments: None)
    with pytest.raises((Disagreement, struct.error)):
        hunt(seed, 50_000)


def test_hunt_finds_a_validator_that_lets_another_error_out(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(tree, "_check_slots", lambda forth, back: forth.index(MAX_ROWS + 1))
    with pytest.raises(ValueError, match="not in list"):
        hunt(seed, 50_000)


def test_refusing_the_largest_message_allocates_less_than_a_mebibyte(seed: int) -> None:
    rng = random.Random(seed)
    message = tree.tree_to_proto(random_tree(rng, VOCAB_SIZE), random_tag(rng, EPOCH))
    message.token_ids.extend([1] * (STAGE_MESSAGE_BYTES - message.ByteSize() - 8))
    data = message.SerializeToString()
    assert STAGE_MESSAGE_BYTES - 16 < len(data) <= STAGE_MESSAGE_BYTES
    tracemalloc.start()
    parsed = parse(pb.tree_pb2.TreeDescriptor, data, STAGE_MESSAGE_BYTES)
    with pytest.raises(ContractError):
        tree.tree_from_proto(parsed, VOCAB_SIZE, EPOCH)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_validation_takes_less_than_fifty_microseconds(seed: int) -> None:
    rng = random.Random(seed)
    full = random_tree(rng, VOCAB_SIZE, num_nodes=MAX_ROWS)
    message = tree.tree_to_proto(full, random_tag(rng, EPOCH))
    best = min(_seconds_per_call(message) for _ in range(20))
    print(f"{best * 1e6:.1f} us a valid message of 32 nodes")
    assert best <= 50e-6


def _seconds_per_call(message: object) -> float:
    start = time.process_time()
    for _ in range(200):
        tree.tree_from_proto(message, VOCAB_SIZE, EPOCH)
    return (time.process_time() - start) / 200
