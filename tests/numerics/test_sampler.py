"""The distribution each row is drawn from: uniform grid, random draws, walks (N7, N8, N9)."""

import dataclasses
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from services.contract.sampling import Budget, SamplingParams
from services.kernels.cases import HYDRA27, make_tree, random_tree
from services.kernels.sample import cases, cpu, draw
from services.kernels.sample.cases import Sequence
from services.kernels.sample.params import SEED_HIGH, SEED_LOW
from services.kernels.state_words import PATH_EMITTED, PATH_NODES
from services.kernels.tree_tables import ANCESTORS, SLOT
from tests.sampling import Case, chi_square_p, grid_words, make_case, philox_words

POINTS, VOCAB = 65536, 64
BUDGET = Budget(1000, 0, (1,), (2,), 4096)
PAPER = SamplingParams(temperature=0.6, top_k=20, top_p=0.95, presence_penalty=1.0, seed=7)
MIXED = SamplingParams(
    temperature=0.9, min_p=0.02, frequency_penalty=0.4, repetition_penalty=1.2, seed=8
)
PLAIN = SamplingParams(temperature=1.0, seed=9)


def tree_case(rng: np.random.Generator, params: SamplingParams, tie_step: float = 0.0) -> Case:
    """A 28-node tree whose tokens repeat on their own paths, so that histories matter."""
    tree = cases.with_tokens(make_tree(HYDRA27), VOCAB, rng)
    emitted = tuple(int(t) for t in rng.integers(0, VOCAB, 9))
    sequence = Sequence(params, BUDGET, (3, 4, 5), emitted)
    return make_case(tree, sequence, cases.make_logits(1, VOCAB, rng, tie_step))


def counts_of(case: Case, node: int, words: np.ndarray) -> np.ndarray:
    out = np.empty(len(words), np.int32)
    cpu.draw_many(case.logits[0, node], case.tables, case.state, node, words, out)
    return np.bincount(out, minlength=VOCAB)


def grid_error(used: Case, claimed: Case, node: int) -> float:
    """Worst |count - M p|: counts drawn with `used`, probabilities of `claimed`."""
    counts = counts_of(used, node, grid_words(POINTS))
    return float(np.abs(counts - POINTS * claimed.probabilities(node)).max())


@pytest.mark.parametrize("params", [PAPER, MIXED, PLAIN], ids=["paper", "mixed", "plain"])
@pytest.mark.parametrize("tie_step", [0.0, 0.5])
def test_grid_counts_equal_probabilities_on_every_row(
    rng: np.random.Generator, params: SamplingParams, tie_step: float
) -> None:
    case = tree_case(rng, params, tie_step)
    assert max(grid_error(case, case, node) for node in range(28)) <= 2


def other_row(case: Case) -> Case:
    return dataclasses.replace(case, logits=case.logits.roll(1, 1))


def other_values(**changes: float) -> Callable[[Case], Case]:
    def plant(case: Case) -> Case:
        params = dataclasses.replace(case.sequence.params, **changes)
        sequence = dataclasses.replace(case.sequence, params=params)
        return make_case(case.tree, sequence, case.logits)

    return plant


def missed_penalty(case: Case) -> Case:
    """The token of depth 2 enters no history of the rows below it."""
    block = case.tables.block.clone()
    for node in range(28):
        path = case.tree.path_to(node)
        if len(path) > 3:
            block[0, ANCESTORS + node * 16 + 2] = path[1]
    return dataclasses.replace(case, tables=type(case.tables)(block))


def with_likely_history(case: Case) -> Case:
    """Raise, at each row, the tokens of its own path, which penalties then lower."""
    logits = case.logits.clone()
    for node in range(28):
        logits[0, node, case.path_tokens(node)] = 6.0
    return make_case(case.tree, case.sequence, logits)


FAULTS = {
    "another node's row": other_row,
    "top-k off by one": other_values(top_k=21),
    "temperature 3% off": other_values(temperature=0.618),
    "temperature 1% off": other_values(temperature=0.606),
    "penalty missed below depth 2": missed_penalty,
}


@pytest.mark.parametrize("name", FAULTS)
def test_grid_finds_the_planted_fault(rng: np.random.Generator, name: str) -> None:
    params = dataclasses.replace(PAPER, top_p=1.0) if "top-k" in name else PAPER
    for _ in range(5):
        case = tree_case(rng, params)
        case = with_likely_history(case) if "penalty" in name else case
        planted = FAULTS[name](case)
        assert max(grid_error(planted, case, node) for node in range(28)) > 20


def test_grid_finds_two_per_cent_more_mass_on_an_accepted_child(rng: np.random.Generator) -> None:
    case = tree_case(rng, PAPER)
    worst = 0.0
    for node in range(28):
        counts = counts_of(case, node, grid_words(POINTS))
        for child in case.tree.children(node):
            token = case.tree.token_ids[child]
            biased = counts * 0.98
            biased[token] += 0.02 * POINTS
            expected = POINTS * case.probabilities(node)
            worst = max(worst, float(np.abs(biased - expected).max()))
    assert worst > 200


def test_draw_with_given_words_equals_the_grid(rng: np.random.Generator) -> None:
    case = tree_case(rng, PAPER)
    words = rng.integers(0, 1 << 63, (1, 32)).astype(np.int64) * 2 + 1
    out = torch.full((1, 32), -1, dtype=torch.int32)
    draw(case.logits, case.tables, case.state, out, torch.from_numpy(words))
    for node in range(28):
        row = words[0, node : node + 1].view(np.uint64)
        assert counts_of(case, node, row)[int(out[0, node])] == 1


def test_every_row_of_six_trees_passes_chi_square_with_forced_visits(
    rng: np.random.Generator,
) -> None:
    seeds = rng.integers(0, 1 << 62, 200_000).astype(np.uint64)
    alpha, tests = 1e-3, 6 * 28
    for index in range(6):
        case = tree_case(rng, (PAPER, MIXED, PLAIN)[index % 3])
        start = len(case.sequence.prompt) + len(case.sequence.emitted) - 1
        words = [philox_words(seeds, 0, np.full_like(seeds, start + d + 1)) for d in range(12)]
        for node in range(28):
            counts = counts_of(case, node, words[case.tree.depths[node]])
            assert chi_square_p(counts, case.probabilities(node)) > alpha / tests


def test_chi_square_finds_a_temperature_3_per_cent_off(rng: np.random.Generator) -> None:
    seeds = rng.integers(0, 1 << 62, 200_000).astype(np.uint64)
    case = tree_case(rng, PAPER)
    planted = other_values(temperature=0.618)(case)
    words = philox_words(seeds, 0, np.full_like(seeds, 12))
    tails = [
        chi_square_p(counts_of(planted, node, words), case.probabilities(node))
        for node in range(28)
    ]
    assert min(tails) < 1e-3 / (6 * 28)


def last_node_probabilities(case: Case) -> np.ndarray:
    """Probability that the walk stops at each node."""
    reach, stop = np.zeros(28), np.zeros(28)
    reach[0] = 1.0
    for node in range(28):
        probabilities = case.probabilities(node)
        stop[node] = reach[node]
        for child in case.tree.children(node):
            reach[child] = reach[node] * probabilities[case.tree.token_ids[child]]
            stop[node] -= reach[child]
    return stop


def walked_last_nodes(case: Case, seeds: np.ndarray, batch: int = 2000) -> np.ndarray:
    """Count at which node each walk stops, one slot a seed."""
    state = cases.make_state([case.sequence] * batch, VOCAB, slab=batch)
    before = state.output_counts.clone(), state.sampling.clone()
    logits = case.logits.expand(batch, -1, -1).contiguous()
    tables = case.tables.block.repeat(batch, 1)
    tables[:, SLOT] = torch.arange(batch)
    counts = np.zeros(28, np.int64)
    for group in seeds.reshape(-1, batch):
        state.output_counts.copy_(before[0])
        state.sampling.copy_(before[1])
        state.sampling[:, SEED_LOW : SEED_HIGH + 1] = torch.from_numpy(
            group.view(np.int32).reshape(batch, 2)
        )
        cpu.walk(logits, type(case.tables)(tables), state)
        last = state.path[:, PATH_NODES:PATH_EMITTED].max(1).values
        counts += np.bincount(last.numpy(), minlength=28)
    return counts


def likely_tree(rng: np.random.Generator) -> Case:
    """A tree whose children are likely, so that walks spread over its nodes."""
    case = tree_case(rng, PAPER)
    logits = case.logits.clone()
    for node in range(28):
        for rank, child in enumerate(case.tree.children(node)):
            logits[0, node, case.tree.token_ids[child]] = 8.0 - 0.3 * rank
    return make_case(case.tree, case.sequence, logits)


def test_root_walks_stop_at_each_node_as_often_as_they_should(rng: np.random.Generator) -> None:
    case = likely_tree(rng)
    seeds = rng.integers(0, 1 << 62, 20_000)
    expected = last_node_probabilities(case)
    assert chi_square_p(walked_last_nodes(case, seeds), expected) > 1e-3
    assert chi_square_p(walked_last_nodes(other_row(case), seeds[:4000]), expected) < 1e-6


@pytest.mark.slow
def test_200_000_root_walks_stop_at_each_node_as_often_as_they_should(
    rng: np.random.Generator,
) -> None:
    for _ in range(6):
        case = likely_tree(rng)
        seeds = rng.integers(0, 1 << 62, 200_000)
        counts = walked_last_nodes(case, seeds)
        assert chi_square_p(counts, last_node_probabilities(case)) > 1e-3 / 6


def dependence(first: np.ndarray, second: np.ndarray) -> float:
    """Tail probability of the joint counts of two series of words in a 16 x 16 table."""
    cells = (first >> np.uint64(60)) * np.uint64(16) + (second >> np.uint64(60))
    counts = np.bincount(cells.astype(np.int64), minlength=256)
    return chi_square_p(counts, np.full(256, 1 / 256))


def test_words_of_successive_positions_and_of_two_requests_are_independent() -> None:
    positions = np.arange(200_000, dtype=np.uint64)
    one, two = np.full_like(positions, 41), np.full_like(positions, 42)
    words = philox_words(one, 0, positions)
    assert dependence(words[:-1], words[1:]) > 1e-3
    assert dependence(words, philox_words(two, 0, positions)) > 1e-3
    assert dependence(words, philox_words(one, 1, positions)) > 1e-3
    # A counter that forgets the request gives the same words twice: found at once.
    assert dependence(words, philox_words(one, 0, positions)) < 1e-9


@pytest.mark.parametrize(("params", "bound"), [(PAPER, 1e-6), (PLAIN, 1e-5)], ids=["k", "all"])
def test_used_row_is_that_of_float64_at_the_full_vocabulary(
    rng: np.random.Generator, params: SamplingParams, bound: float
) -> None:
    vocab = 248_320
    sequence = Sequence(params, BUDGET, (3,), ())
    logits = torch.from_numpy(rng.normal(0, 3, (1, 32, vocab)).astype(np.float32))
    case = make_case(make_tree((-1,)), sequence, logits)
    slots, scratch = case.state.host
    row = logits[0, 0].numpy()
    size = cpu._survivors(row, row.max(), slots.doubles[0], params.top_k, scratch)
    used = np.zeros(vocab)
    used[scratch.ids[:size]] = scratch.weights[:size] / scratch.weights[:size].sum()
    exact = case.probabilities(0)
    assert 0.5 * np.abs(used - exact).sum() <= bound
    # The control: a stored fp32 cumulative sum over the whole vocabulary.
    stored = np.cumsum((np.exp(row - row.max()) / np.exp(row - row.max()).sum()).astype(np.float32))
    plain = dataclasses.replace(case, sequence=Sequence(PLAIN, BUDGET, (3,), ()))
    assert 0.5 * np.abs(np.diff(stored, prepend=0) - plain.probabilities(0)).sum() > 1e-5


def test_random_trees_draw_from_their_own_paths(rng: np.random.Generator, seed: int) -> None:
    shapes = random.Random(seed)
    for _ in range(6):
        tree = cases.with_tokens(random_tree(shapes), VOCAB, rng)
        sequence = Sequence(MIXED, BUDGET, (3, 4), (9, 9, 10))
        case = make_case(tree, sequence, cases.make_logits(1, VOCAB, rng, 0.25))
        assert max(grid_error(case, case, node) for node in range(tree.num_nodes)) <= 2
