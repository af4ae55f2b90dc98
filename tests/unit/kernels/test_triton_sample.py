"""The sampler's Triton kernels, interpreted: the reference's tokens, paths, counts and cuts."""

import dataclasses
import random

import numpy as np
import pytest
import torch

from services.contract.path import CutReason
from services.contract.sampling import Budget, SamplingParams
from services.contract.topology import NodeSource
from services.kernels.cases import chain_tree, make_tree, random_tree
from services.kernels.sample import cases, kernel, reference
from services.kernels.sample.cases import Sequence
from services.kernels.state_words import (
    PATH_COMMITTED,
    PATH_EMITTED,
    PATH_EMITTED_BEFORE,
    PATH_NODES,
    PATH_NUM_EMITTED,
    PATH_NUM_NODES,
)

WRITTEN = ("path", "output_counts", "sampling", "logprob_ids")
LANES, LIST = 64, 32
# Each meets another way through the kernels: greedy, list, list of top-p, overflow.
WAYS = {
    "greedy": SamplingParams(frequency_penalty=0.5),
    "top-k and min-p": SamplingParams(temperature=0.8, top_k=5, min_p=0.02, presence_penalty=1.0),
    "top-p": SamplingParams(temperature=0.3, top_p=0.6, repetition_penalty=1.3),
    "top-p overflows": SamplingParams(temperature=3.0, top_p=0.97),
    "top-k overflows": SamplingParams(temperature=3.0, top_k=60),
    "everything": SamplingParams(temperature=1.0, num_logprobs=2),
    "processed logprobs": SamplingParams(
        temperature=0.7, top_p=0.8, num_logprobs=2, processed_logprobs=True, logit_bias=((3, 2.0),)
    ),
}


def compare_walks(
    sequence: Sequence, nodes: int, rng: np.random.Generator, shapes: random.Random, step: float
) -> None:
    vocab = 200
    tree = cases.with_tokens(random_tree(shapes, nodes), vocab, rng)
    tables = cases.make_tables([tree], [sequence], [0])
    logits = cases.make_logits(1, vocab, rng, step)
    logits[0, :, 17] = torch.nan
    states = [cases.make_state([sequence], vocab, 1, LIST, LANES) for _ in range(2)]
    reference.walk(logits, tables, states[0])
    kernel.walk(logits, tables, states[1])
    live = tree.num_nodes
    assert torch.equal(states[0].drawn[:, :live], states[1].drawn[:, :live])
    for name in WRITTEN:
        assert torch.equal(getattr(states[0], name), getattr(states[1], name)), name
    values = [state.logprob_values for state in states]
    torch.testing.assert_close(*values, rtol=2e-7, atol=2e-7, equal_nan=True)


@pytest.mark.parametrize("name", WAYS)
def test_every_way_gives_the_reference(rng: np.random.Generator, seed: int, name: str) -> None:
    budget = Budget(64, 8, (5,), (9, 11), 4096)
    emitted = tuple(int(t) for t in rng.integers(0, 200, 6))
    params = dataclasses.replace(WAYS[name], seed=int(rng.integers(1 << 40)))
    sequence = Sequence(params, budget, (1, 2, 3), emitted, 2)
    compare_walks(sequence, 5, rng, random.Random(seed), 0.5)


def test_random_parameters_give_the_reference(rng: np.random.Generator, seed: int) -> None:
    shapes = random.Random(seed)
    for _ in range(2):
        compare_walks(cases.random_sequence(rng, 200), 4, rng, shapes, 0.25)


def test_a_shorter_list_changes_no_token(rng: np.random.Generator) -> None:
    """Lists of 16 overflow where lists of 128 do not."""
    vocab, params = 200, SamplingParams(temperature=1.5, top_k=30, top_p=0.9, seed=4)
    sequence = Sequence(params, Budget(64))
    tables = cases.make_tables([make_tree((-1, 0, 0))], [sequence], [0])
    logits = cases.make_logits(1, vocab, rng, 0.5)
    found = []
    for size in (16, 128):
        state = cases.make_state([sequence], vocab, 1, size, LANES)
        kernel.draw(logits, tables, state, state.drawn)
        found.append(state.drawn[0, :3].tolist())
        listed = int(state.split_scratch.sizes[:4].sum())
        assert (listed > size) == (size == 16)
    assert found[0] == found[1]


def test_given_words_are_used(rng: np.random.Generator) -> None:
    sequence = Sequence(SamplingParams(temperature=1.0, top_k=8, seed=4), Budget(64))
    tables = cases.make_tables([make_tree((-1, 0, 0, 0))], [sequence], [0])
    logits = cases.make_logits(1, 200, rng, 0)
    words = torch.from_numpy(rng.integers(-(1 << 62), 1 << 62, (1, 32)))
    drawn = []
    for backend in (reference, kernel):
        state = cases.make_state([sequence], 200, 1, LIST, LANES)
        backend.draw(logits, tables, state, state.drawn, words)
        drawn.append(state.drawn[0, :4].tolist())
    assert drawn[0] == drawn[1]


def test_a_forced_chain_is_taken_to_its_end(rng: np.random.Generator) -> None:
    chain = cases.with_tokens(chain_tree(16), 100, rng)
    forced = dataclasses.replace(chain, sources=(int(NodeSource.ROOT), *[NodeSource.FORCED] * 15))
    sequence = Sequence(SamplingParams(), Budget(100))
    state = cases.make_state([sequence], 100, 1, LIST, LANES)
    logits = cases.make_logits(1, 100, rng, 0)
    kernel.walk(logits, cases.make_tables([forced], [sequence], [0]), state)
    path = state.path[0].tolist()
    assert path[PATH_NUM_NODES] == 16
    assert path[PATH_EMITTED : PATH_EMITTED + 15] == list(chain.token_ids[1:])


@pytest.mark.parametrize("kind", [CutReason.EOS, CutReason.STOP_ID, CutReason.BUDGET])
def test_the_cut_is_the_references_at_every_offset(kind: CutReason) -> None:
    path = torch.full((1, 64), -1, dtype=torch.int32)
    path[0, :10] = torch.tensor([5, 3, 16, 16, 25, 1, -1, 0, 7, 36])
    assert (PATH_EMITTED_BEFORE, PATH_COMMITTED, PATH_NUM_EMITTED) == (8, 9, 3)
    path[0, PATH_NODES:PATH_EMITTED] = torch.arange(16)
    path[0, PATH_EMITTED : PATH_EMITTED + 16] = torch.arange(10, 26)
    slots = torch.zeros(1, dtype=torch.int32)
    for offset in range(17):
        eos = (10 + offset,) if kind is CutReason.EOS else ()
        stop = (10 + offset,) if kind is CutReason.STOP_ID else ()
        end = 8 + offset if kind is CutReason.BUDGET else 1000
        state = cases.make_state([Sequence(SamplingParams(), Budget(end, 0, eos, stop))], 50)
        found = [torch.full_like(path, -9) for _ in range(2)]
        for backend, out in zip((reference, kernel), found, strict=True):
            backend.accept(path, state.sampling, state.prompt_mask, slots, out)
        assert torch.equal(*found)
