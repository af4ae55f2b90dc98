"""R8: what each bound of the contract allows at the bound, and refuses one past it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from services.contract import limits
from services.contract.config import EngineConfig
from services.contract.errors import ContractError
from services.contract.path import AcceptedPath
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.contract.topology import Tree
from services.contract.tree import TreeTag, tree_from_proto, tree_to_proto
from tests.unit.contract.test_tree import chain, wide


class Bound(NamedTuple):
    """A limit, and what makes a value of a given size."""

    limit: int
    make: Callable[[int], Any]
    step: int = 1


def tag(**values: Any) -> TreeTag:
    defaults = {
        "request_id": "r",
        "choice_index": 0,
        "epoch": 7,
        "cycle": 0,
        "committed_length": 0,
        "slot": 0,
        "generation": 0,
    }
    return TreeTag(**{**defaults, **values})


def received(committed_length: int) -> Tree:
    message = tree_to_proto(Tree.root_only(1), tag(committed_length=committed_length))
    return tree_from_proto(message, 2, 7)[0]


def path(num_nodes: int) -> AcceptedPath:
    nodes = tuple(range(num_nodes))
    return AcceptedPath(nodes, nodes, num_nodes - 1, num_nodes)


def sampling(**values: Any) -> SamplingParams:
    return SamplingParams(**values)


def ids(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def config(**values: Any) -> EngineConfig:
    return EngineConfig("folder", **values)


BOUNDS: dict[str, Bound] = {
    "rows of a tree": Bound(limits.MAX_ROWS, wide),
    "nodes of a path": Bound(limits.MAX_PATH, chain),
    "nodes of an accepted path": Bound(limits.MAX_PATH, path),
    "row capacity": Bound(
        limits.MAX_ROWS, lambda n: tree_to_proto(Tree.root_only(1), tag(), row_capacity=n)
    ),
    "token id": Bound(limits.MAX_VOCAB - 1, Tree.root_only),
    "request id": Bound(limits.MAX_REQUEST_ID, lambda n: tag(request_id="x" * n)),
    "choice": Bound(limits.MAX_CHOICES - 1, lambda n: tag(choice_index=n)),
    "slot": Bound(limits.MAX_SEQUENCES - 1, lambda n: tag(slot=n)),
    "epoch": Bound(limits.MAX_COUNTER, lambda n: tag(epoch=n)),
    "cycle": Bound(limits.MAX_COUNTER, lambda n: tag(cycle=n)),
    "generation": Bound(limits.MAX_COUNTER, lambda n: tag(generation=n)),
    "committed length received": Bound(limits.MAX_CONTEXT - limits.MAX_PATH, received),
    "top_k": Bound(limits.MAX_VOCAB, lambda n: sampling(top_k=n)),
    "logprobs": Bound(limits.MAX_LOGPROBS, lambda n: sampling(num_logprobs=n)),
    "temperature": Bound(int(limits.MAX_TEMPERATURE), lambda n: sampling(temperature=n)),
    "penalty": Bound(int(limits.MAX_PENALTY), lambda n: sampling(presence_penalty=n)),
    "negative penalty": Bound(
        -int(limits.MAX_PENALTY), lambda n: sampling(frequency_penalty=n), step=-1
    ),
    "repetition penalty": Bound(
        int(limits.MAX_REPETITION), lambda n: sampling(repetition_penalty=n)
    ),
    "bias": Bound(int(limits.MAX_BIAS), lambda n: sampling(logit_bias=((1, n),))),
    "biased ids": Bound(
        limits.MAX_BIAS_IDS, lambda n: sampling(logit_bias=tuple((i, 0.0) for i in range(n)))
    ),
    "allowed ids": Bound(limits.MAX_LISTED_IDS, lambda n: sampling(allowed_token_ids=ids(n))),
    "banned ids": Bound(limits.MAX_LISTED_IDS, lambda n: sampling(banned_token_ids=ids(n))),
    "max_tokens": Bound(limits.MAX_NEW_TOKENS, Budget),
    "end tokens": Bound(limits.MAX_EOS_IDS, lambda n: Budget(1, eos_ids=ids(n))),
    "stop ids": Bound(limits.MAX_STOP_IDS, lambda n: Budget(1, stop_ids=ids(n))),
    "context of a budget": Bound(limits.MAX_CONTEXT, lambda n: Budget(1, context_length=n)),
    "shape": Bound(limits.MAX_SHAPE_CHARS, lambda n: Drafting(shape="x" * n)),
    "drafter": Bound(limits.MAX_DRAFTER_CHARS, lambda n: Drafting(drafter="x" * n)),
    "tenant": Bound(limits.MAX_TENANT, lambda n: Drafting(tenant="x" * n)),
    "sequences": Bound(limits.MAX_SEQUENCES, lambda n: config(max_sequences=n)),
    "context of an engine": Bound(limits.MAX_CONTEXT, lambda n: config(context_length=n)),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_value_at_its_bound_is_taken_and_one_past_it_is_refused(name: str) -> None:
    bound = BOUNDS[name]
    bound.make(bound.limit)
    with pytest.raises(ContractError):
        bound.make(bound.limit + bound.step)
