"""The sampler's backends agree, and a row depends on nothing but itself."""

import dataclasses
import random
from types import ModuleType

import numpy as np
import pytest
import torch

from services.contract.path import CutReason
from services.contract.sampling import Budget, SamplingParams
from services.contract.topology import NodeSource, Tree
from services.kernels.cases import chain_tree, random_tree
from services.kernels.fixed import WEIGHT_ONE
from services.kernels.fixed.reference import fixed_weights, philox, philox_word
from services.kernels.sample import accept, cases, cpu, reference, walk
from services.kernels.sample.cases import Sequence
from services.kernels.sample.state import SampleState
from services.kernels.state_words import (
    PATH_COMMITTED,
    PATH_CUT_INDEX,
    PATH_CUT_REASON,
    PATH_CYCLE,
    PATH_EMITTED,
    PATH_EMITTED_BEFORE,
    PATH_EPOCH,
    PATH_NODES,
    PATH_NUM_EMITTED,
    PATH_NUM_NODES,
    PATH_PENDING,
)
from tests.sampling import philox_words

WRITTEN = ("path", "output_counts", "sampling", "logprob_ids")


def test_philox_gives_the_published_vectors() -> None:
    full = 0xFFFFFFFF
    assert philox((0, 0), (0, 0, 0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    found = philox((full, full), (full, full, full, full))
    assert found == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    digits = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    found = philox((0xA4093822, 0x299F31D0), digits)
    assert found == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_random_words_are_the_same_in_three_forms(rng: np.random.Generator) -> None:
    for _ in range(200):
        seed, choice, position = (int(rng.integers(0, top)) for top in (1 << 63, 8, 1 << 20))
        seed = seed * 2 + 1
        low, high = np.array([seed], np.uint64).view(np.int32)
        expected = philox_word(seed, choice, position)
        assert int(cpu.random_word(low, high, choice, position)) == expected
        arrays = (np.array([x], np.uint64) for x in (seed, position))
        first, second = arrays
        assert int(philox_words(first, choice, second)[0]) == expected


def test_weights_are_exponentials_within_one_unit() -> None:
    z = -torch.rand(100_000, dtype=torch.float64) * 30
    exact = torch.exp(z) * WEIGHT_ONE
    assert float((fixed_weights(z) - exact).abs().max()) <= 1.01
    assert fixed_weights(torch.tensor([0.0, -64.0, -1e9], dtype=torch.float64)).tolist() == [
        int(WEIGHT_ONE),
        0,
        0,
    ]


def random_slab(
    rng: np.random.Generator, shapes: random.Random, max_nodes: int = 32
) -> tuple[list[Sequence], tuple[torch.Tensor, object], int]:
    vocab = int(rng.choice([50, 97, 300]))
    sequences = [cases.random_sequence(rng, vocab) for _ in range(2)]
    trees = [cases.with_tokens(random_tree(shapes, max_nodes), vocab, rng) for _ in range(2)]
    logits = cases.make_logits(2, vocab, rng, float(rng.choice([0.0, 0.5, 0.05])))
    return sequences, (logits, cases.make_tables(trees, sequences, [1, 0])), vocab


def outcome(backend: ModuleType, operands: tuple, state: SampleState) -> list[torch.Tensor]:
    drawn = torch.full((2, 32), -1, dtype=torch.int32)
    backend.draw(*operands, state, drawn)
    backend.walk(*operands, state)
    return [drawn, *(getattr(state, name) for name in WRITTEN)]


def test_numba_equals_the_reference_in_every_token_path_count_and_id(
    rng: np.random.Generator, seed: int
) -> None:
    shapes = random.Random(seed)
    for _ in range(25):
        sequences, operands, vocab = random_slab(rng, shapes)
        states = [cases.make_state(sequences, vocab) for _ in range(2)]
        expected = outcome(reference, operands, states[0])
        found = outcome(cpu, operands, states[1])
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
        values = [state.logprob_values for state in states]
        torch.testing.assert_close(*values, rtol=2e-7, atol=2e-7, equal_nan=True)


def test_infinite_logits_draw_the_lowest_allowed_of_them(rng: np.random.Generator) -> None:
    params = SamplingParams(
        temperature=0.7,
        seed=3,
        num_logprobs=1,
        banned_token_ids=(4,),
        presence_penalty=1.0,
        repetition_penalty=1.2,
    )
    sequences = [Sequence(params, Budget(64), (1, 9, 11)) for _ in range(2)]
    trees = [cases.with_tokens(chain_tree(3), 50, rng) for _ in range(2)]
    tables = cases.make_tables(trees, sequences, [0, 1])
    logits = cases.make_logits(2, 50, rng, 0.5)
    finite = logits.clone()
    logits[:, :, [4, 9, 11]] = torch.inf
    for given, is_lowest in ((logits, True), (finite, False)):
        for backend in (reference, cpu):
            state = cases.make_state(sequences, 50)
            state.logprob_values.fill_(torch.nan)
            drawn = outcome(backend, (given, tables), state)[0][:, :3]
            assert bool((drawn == 9).all()) == is_lowest
            assert not bool(state.logprob_values[:, 0, :2].isnan().any())


def test_another_row_order_neighbour_or_nan_changes_nothing(
    rng: np.random.Generator, seed: int
) -> None:
    shapes = random.Random(seed)
    for _ in range(20):
        sequences, (logits, tables), vocab = random_slab(rng, shapes)
        both = cases.make_state(sequences, vocab)
        walk(logits, tables, both)
        for row, slot in ((0, 1), (1, 0)):
            alone = cases.make_state(sequences, vocab)
            poisoned = logits.clone()
            poisoned[1 - row] = torch.nan
            poisoned[row, int(tables.header[row, 0]) :] = torch.nan
            view = type(tables)(tables.block[row : row + 1])
            walk(poisoned[row : row + 1], view, alone)
            for name in (*WRITTEN, "logprob_values"):
                found, expected = getattr(alone, name)[slot], getattr(both, name)[slot]
                assert torch.equal(found.nan_to_num(), expected.nan_to_num())


class ToyModel:
    """Logits that are a function of the whole context."""

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab

    def logits(self, context: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng(abs(hash(context)))
        return np.round(rng.normal(0, 2, self.vocab) * 4).astype(np.float32) / np.float32(4)


def generate(
    model: ToyModel, sequence: Sequence, count: int, shapes: random.Random, max_nodes: int
) -> list[int]:
    """Decode with random trees of at most `max_nodes` nodes; 1 is plain decoding."""
    context, state = list(sequence.prompt), cases.make_state([sequence], model.vocab)
    rng = np.random.default_rng(shapes.randrange(1 << 30))
    while len(context) < len(sequence.prompt) + count:
        tree = drafted(model, context, shapes, rng, max_nodes)
        emitted = tuple(context[len(sequence.prompt) :])
        now = dataclasses.replace(sequence, emitted=emitted)
        logits = torch.full((1, 32, model.vocab), torch.nan)
        for node in range(tree.num_nodes):
            path = [tree.token_ids[i] for i in tree.path_to(node)[1:]]
            logits[0, node] = torch.from_numpy(model.logits((*context, *path)))
        walk(logits, cases.make_tables([tree], [now], [0]), state)
        found = int(state.path[0, PATH_NUM_EMITTED])
        context += state.path[0, PATH_EMITTED : PATH_EMITTED + found].tolist()
    return context[len(sequence.prompt) :][:count]


def drafted(
    model: ToyModel, context: list[int], shapes: random.Random, rng: np.random.Generator, size: int
) -> Tree:
    """A random tree whose drafts are often the model's own best tokens."""
    tree = cases.with_tokens(random_tree(shapes, size), model.vocab, rng)
    tokens = [context[-1], *tree.token_ids[1:]]
    for node in range(tree.num_nodes):
        best = np.argsort(-model.logits((*context, *(tokens[i] for i in tree.path_to(node)[1:]))))
        for rank, child in enumerate(tree.children(node)):
            tokens[child] = int(best[rank])
    return dataclasses.replace(tree, token_ids=tuple(tokens))


def test_trees_give_the_text_of_plain_decoding(rng: np.random.Generator, seed: int) -> None:
    model, shapes = ToyModel(40), random.Random(seed)
    for _ in range(12):
        sequence = dataclasses.replace(cases.random_sequence(rng, 40), emitted=())
        plain = generate(model, sequence, 40, shapes, 1)
        assert generate(model, sequence, 40, shapes, 32) == plain
        assert generate(model, sequence, 40, shapes, 6) == plain
        other = dataclasses.replace(
            sequence, params=dataclasses.replace(sequence.params, seed=99, temperature=1.5)
        )
        assert generate(model, other, 40, shapes, 6) != plain


def test_a_forced_chain_is_taken_to_its_end_whatever_is_drawn(rng: np.random.Generator) -> None:
    chain = cases.with_tokens(chain_tree(16), 50, rng)
    forced = dataclasses.replace(chain, sources=(int(NodeSource.ROOT), *[NodeSource.FORCED] * 15))
    sequence = Sequence(SamplingParams(num_logprobs=0), Budget(100))
    logits = cases.make_logits(1, 50, rng, 0)
    for tree, count in ((forced, 16), (chain, 1)):
        states = [cases.make_state([sequence], 50) for _ in range(2)]
        tables = cases.make_tables([tree], [sequence], [0])
        for backend, state in zip((reference, cpu), states, strict=True):
            backend.walk(logits, tables, state)
            path = state.path[0]
            assert path[PATH_NUM_NODES] == count
            assert path[PATH_EMITTED : PATH_EMITTED + 15].tolist()[: count - 1] == list(
                tree.token_ids[1:count]
            )
            assert state.logprob_ids[0, :count, 0].tolist() == path[32 : 32 + count].tolist()


def test_path_words_say_what_was_walked(rng: np.random.Generator) -> None:
    sequence = Sequence(SamplingParams(), Budget(100), (1, 2, 3), (4, 5))
    state = cases.make_state([sequence], 50)
    tree = cases.with_tokens(random_tree(random.Random(5), 12), 50, rng)
    walk(cases.make_logits(1, 50, rng, 0), cases.make_tables([tree], [sequence], [0]), state)
    path = state.path[0].tolist()
    count = path[PATH_NUM_NODES]
    assert (path[PATH_EPOCH], path[PATH_CYCLE]) == (5, 3)
    assert path[PATH_NUM_EMITTED] == count
    assert path[PATH_PENDING] == path[PATH_EMITTED + count - 1]
    assert (path[PATH_CUT_REASON], path[PATH_CUT_INDEX]) == (int(CutReason.NONE), -1)
    assert (path[PATH_EMITTED_BEFORE], path[PATH_COMMITTED]) == (2, 4 + count)
    assert path[PATH_NODES] == 0
    assert int(state.output_counts.sum()) == 2 + count


def made_path(emitted: list[int], before: int, committed: int) -> torch.Tensor:
    path = torch.full((1, 64), -1, dtype=torch.int32)
    count = len(emitted)
    path[0, :10] = torch.tensor([5, 3, count, count, emitted[-1], 1, -1, 0, before, 0])
    path[0, PATH_COMMITTED] = committed + count
    path[0, PATH_NODES : PATH_NODES + count] = torch.arange(count)
    path[0, PATH_EMITTED : PATH_EMITTED + count] = torch.tensor(emitted)
    return path


def cut(path: torch.Tensor, budget: Budget, backend: ModuleType | None = None) -> list[int]:
    state = cases.make_state([Sequence(SamplingParams(), budget)], 50)
    out = torch.full_like(path, -9)
    run = backend.accept if backend else accept
    run(path, state.sampling, state.prompt_mask, torch.zeros(1, dtype=torch.int32), out)
    return out[0].tolist()


@pytest.mark.parametrize("backend", [reference, cpu], ids=["reference", "cpu"])
@pytest.mark.parametrize("kind", ["EOS", "STOP_ID", "BUDGET", "CONTEXT"])
def test_the_cut_falls_on_the_first_ending_token_at_every_offset(
    backend: ModuleType, kind: str
) -> None:
    for length in range(1, 17):
        for offset in range(length):
            emitted = [10 + i for i in range(length)]
            budget = {
                "EOS": Budget(1000, 0, (10 + offset,)),
                "STOP_ID": Budget(1000, 0, (), (10 + offset,)),
                "BUDGET": Budget(7 + offset + 1),
                "CONTEXT": Budget(1000, 0, (), (), 20 + offset + 2),
            }[kind]
            found = cut(made_path(emitted, 7, 20), budget, backend)
            assert found[PATH_CUT_REASON] == int(CutReason[kind])
            assert found[PATH_CUT_INDEX] == offset
            assert found[PATH_NUM_NODES] == found[PATH_NUM_EMITTED] == offset + 1
            assert found[PATH_PENDING] == emitted[offset]
            assert found[PATH_COMMITTED] == 20 + offset + 1
            kept = found[PATH_NODES:PATH_EMITTED], found[PATH_EMITTED : PATH_EMITTED + 16]
            assert kept[0] == [*range(offset + 1), *[-1] * (15 - offset)]
            assert kept[1] == [*emitted[: offset + 1], *[-1] * (15 - offset)]


def test_an_uncut_path_is_copied_and_the_earliest_token_wins() -> None:
    path = made_path([10, 11, 12, 13, 14, 15], 0, 20)
    assert cut(path, Budget(100)) == path[0].tolist()
    early = cut(path, Budget(5, 0, (), (12,)))
    assert (early[PATH_CUT_REASON], early[PATH_CUT_INDEX]) == (int(CutReason.STOP_ID), 2)
    late = cut(path, Budget(5, 0, (), (15,)))
    assert (late[PATH_CUT_REASON], late[PATH_CUT_INDEX]) == (int(CutReason.BUDGET), 4)
    same = cut(path, Budget(5, 0, (14,), (14,), 26))
    assert (same[PATH_CUT_REASON], same[PATH_CUT_INDEX]) == (int(CutReason.EOS), 4)
    both = cut(path, Budget(5, 0, (), (), 26))
    assert (both[PATH_CUT_REASON], both[PATH_CUT_INDEX]) == (int(CutReason.BUDGET), 4)


def test_logprobs_are_those_of_the_emitted_tokens_own_rows(rng: np.random.Generator) -> None:
    sampling = SamplingParams(temperature=1.0, seed=3, num_logprobs=5)
    sequence = Sequence(sampling, Budget(100))
    tree = cases.with_tokens(random_tree(random.Random(4), 20), 60, rng)
    logits = cases.make_logits(1, 60, rng, 0)
    state = cases.make_state([sequence], 60)
    walk(logits, cases.make_tables([tree], [sequence], [0]), state)
    for place in range(int(state.path[0, PATH_NUM_NODES])):
        node = int(state.path[0, PATH_NODES + place])
        exact = torch.log_softmax(logits[0, node].double(), 0)
        ids = state.logprob_ids[0, place, :6].long()
        assert ids[0] == state.path[0, PATH_EMITTED + place]
        assert torch.equal(ids[1:], torch.sort(exact, descending=True).indices[:5])
        torch.testing.assert_close(
            state.logprob_values[0, place, :6].double(), exact[ids], rtol=1e-6, atol=1e-6
        )


def test_processed_logprobs_of_what_cannot_be_drawn_are_floored(rng: np.random.Generator) -> None:
    sampling = SamplingParams(
        temperature=0.5, top_k=1, seed=3, num_logprobs=20, processed_logprobs=True
    )
    state = cases.make_state([Sequence(sampling, Budget(100))], 60)
    sequence = [Sequence(sampling, Budget(100))]
    tables = cases.make_tables([Tree.root_only(3)], sequence, [0])
    walk(cases.make_logits(1, 60, rng, 0), tables, state)
    assert state.logprob_values[0, 0].tolist() == [0.0, 0.0, *[-9999.0] * 19]
