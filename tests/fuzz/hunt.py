"""Feed mutants to the validator and count what it says."""

import random
from collections import Counter

from services.contract import pb, tree
from services.contract.errors import ContractError
from services.contract.limits import STAGE_MESSAGE_BYTES
from services.contract.wire import parse
from tests.fuzz.mutate import mutated
from tests.fuzz.reference_rules import is_valid
from tests.trees import random_tag, random_tree

VOCAB_SIZE = 4096
EPOCH = 7


class Disagreement(Exception):
    """The validator and the reference rules judge a message differently."""


def hunt(seed: int, num_messages: int) -> Counter[str]:
    """Return how often each verdict was given.

    Raises  Disagreement on a wrong verdict; whatever else the validator lets out.
    """
    rng = random.Random(seed)
    verdicts: Counter[str] = Counter()
    for index in range(num_messages):
        if index % 64 == 0:
            valid = random_tree(rng, VOCAB_SIZE)
            message = tree.tree_to_proto(valid, random_tag(rng, EPOCH), _capacity(rng, valid))
            data = message.SerializeToString()
        verdicts[_verdict(mutated(rng, data), check_refusal=index % 8 == 0)] += 1
    return verdicts


def _capacity(rng: random.Random, valid: tree.Tree) -> int:
    return rng.choice((32, rng.randint(valid.num_nodes, 32)))


def _verdict(data: bytes, check_refusal: bool) -> str:
    try:
        message = parse(pb.tree_pb2.TreeDescriptor, data, STAGE_MESSAGE_BYTES)
    except ContractError as error:
        return error.reason
    try:
        tree.tree_from_proto(message, VOCAB_SIZE, EPOCH)
    except ContractError as error:
        if check_refusal and is_valid(message, VOCAB_SIZE, EPOCH):
            raise Disagreement(f"refused a valid message: {error}; {data.hex()}") from error
        return error.reason
    if not is_valid(message, VOCAB_SIZE, EPOCH):
        raise Disagreement(f"accepted an invalid message: {data.hex()}")
    return "ACCEPTED"
