"""Every sampling parameter is honoured on every row, by brute force over token lists (N10)."""

import dataclasses
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from services.contract import limits
from services.contract.sampling import Budget, SamplingParams
from services.kernels.cases import make_tree, random_tree
from services.kernels.sample import cases, draw, params, walk
from services.kernels.sample.cases import Sequence
from tests.sampling import Case, edited, make_case, philox_words

NUM_ROWS, VOCAB = 2480, 96
EDGE = 1e-9


def random_case(rng: np.random.Generator, shapes: random.Random) -> Case:
    tree = cases.with_tokens(random_tree(shapes), VOCAB, rng)
    sequence = cases.random_sequence(rng, VOCAB)
    step = float(rng.choice([0.0, 0.25, 1.0]))
    return make_case(tree, sequence, cases.make_logits(1, VOCAB, rng, step))


def expected_token(case: Case, node: int) -> tuple[int, bool]:
    """The token at the row's uniform, and whether the uniform lies on a border."""
    sequence = case.sequence
    known = len(sequence.prompt) + len(sequence.emitted)
    seed = np.array([sequence.params.seed], np.uint64)
    position = np.array([known + case.tree.depths[node]], np.uint64)
    uniform = int(philox_words(seed, sequence.choice_index, position)[0]) / 2**64
    reached = np.cumsum(case.probabilities(node))
    reached[-1] = 1.0
    return int(np.argmax(reached > uniform)), bool(np.abs(reached - uniform).min() < EDGE)


def drawn(case: Case) -> list[int]:
    out = torch.full((1, 32), -1, dtype=torch.int32)
    draw(case.logits, case.tables, case.state, out)
    return [int(token) for token in out[0, : case.tree.num_nodes]]


def mismatches(rng: np.random.Generator, seed: int, used: Callable[[Case], Case], rows: int) -> int:
    """Count rows whose drawn token is not the brute force's; `used` makes what is drawn from."""
    shapes, wrong, borders, seen = random.Random(seed), 0, 0, 0
    while seen < rows:
        case = random_case(rng, shapes)
        for node, token in enumerate(drawn(used(case))[: rows - seen]):
            expected, is_border = expected_token(case, node)
            wrong += token != expected and not is_border
            borders += is_border
            seen += 1
    assert borders <= rows // 500
    return wrong


def test_2480_rows_draw_the_token_of_the_brute_force(rng: np.random.Generator, seed: int) -> None:
    assert mismatches(rng, seed, lambda case: case, NUM_ROWS) == 0


def without(**changes: object) -> Callable[[Case], Case]:
    def plant(case: Case) -> Case:
        values = dataclasses.replace(case.sequence.params, **changes)
        sequence = dataclasses.replace(case.sequence, params=values)
        return make_case(case.tree, sequence, case.logits)

    return plant


def without_min_tokens(case: Case) -> Case:
    budget = dataclasses.replace(case.sequence.budget, min_tokens=0)
    logits = case.logits.clone()
    return make_case(case.tree, dataclasses.replace(case.sequence, budget=budget), logits)


def without_path(case: Case) -> Case:
    """Every row counts the same tokens: what flattened penalties did."""
    tables = type(case.tables)(case.tables.block.clone())
    tables.tokens[0] = tables.tokens[0, 0].clone()
    return dataclasses.replace(case, tables=tables)


IGNORED = {
    "presence": without(presence_penalty=0.0),
    "frequency": without(frequency_penalty=0.0),
    "repetition": without(repetition_penalty=1.0),
    "min_p": without(min_p=0.0),
    "top_k": without(top_k=0),
    "top_p": without(top_p=1.0),
    "logit_bias": without(logit_bias=()),
    "banned ids": without(banned_token_ids=()),
    "min_tokens": without_min_tokens,
    "path": without_path,
}


@pytest.mark.parametrize("name", IGNORED)
def test_a_parameter_that_is_ignored_is_found(
    rng: np.random.Generator, seed: int, name: str
) -> None:
    assert mismatches(rng, seed, IGNORED[name], 1200) > 0


def lone_case(values: np.ndarray, sampling: SamplingParams, **more: object) -> Case:
    logits = torch.from_numpy(np.tile(values.astype(np.float32), (1, 32, 1)))
    sequence = Sequence(sampling, Budget(100, 0, (), (), 4096), **more)
    return make_case(make_tree((-1,)), sequence, logits)


def tokens_of_seeds(values: np.ndarray, sampling: SamplingParams, count: int = 300) -> set[int]:
    found = set()
    for seed in range(count):
        found.update(drawn(lone_case(values, dataclasses.replace(sampling, seed=seed))))
    return found


def test_min_p_of_one_equals_greedy_with_ties_at_the_lowest_id() -> None:
    values = np.zeros(VOCAB)
    values[[7, 40, 90]] = 2.5
    sampled = SamplingParams(temperature=1.0, min_p=1.0)
    assert tokens_of_seeds(values, sampled) == {7} == tokens_of_seeds(values, SamplingParams())
    assert tokens_of_seeds(values, SamplingParams(temperature=1.0)) != {7}


def test_top_k_keeps_every_tie_at_its_border() -> None:
    values = np.full(VOCAB, -3.0)
    values[[7, 40, 60, 90]] = 2.5
    values[3] = 3.0
    kept = tokens_of_seeds(values, SamplingParams(temperature=1.0, top_k=2))
    assert kept == {3, 7, 40, 60, 90}


def test_top_p_breaks_ties_by_the_lowest_id() -> None:
    values = np.full(VOCAB, -50.0)
    values[[7, 40, 60, 90]] = 2.5
    assert tokens_of_seeds(values, SamplingParams(temperature=1.0, top_p=0.5)) == {7, 40}


def test_bias_of_100_forces_and_a_ban_of_minus_100_hides(rng: np.random.Generator) -> None:
    values = rng.normal(0, 2, VOCAB)
    best = int(values.argmax())
    for temperature in (0.0, 1.0):
        forced = SamplingParams(temperature=temperature, logit_bias=((5, 100.0),))
        hidden = SamplingParams(temperature=temperature, logit_bias=((best, -100.0),))
        assert tokens_of_seeds(values, forced, 50) == {5}
        assert best not in tokens_of_seeds(values, hidden, 50)
        allowed = SamplingParams(temperature=temperature, allowed_token_ids=(9, 11))
        assert tokens_of_seeds(values, allowed, 50) <= {9, 11}


def test_min_tokens_hides_end_tokens_by_token_and_not_by_cycle() -> None:
    """A chain of forced-likely tokens: the end token stays hidden to the exact token."""
    chain, end = make_tree(tuple(range(-1, 9))), 1
    logits = torch.full((1, 32, VOCAB), -5.0)
    logits[0, :, end] = 9.0
    for node in range(9):
        logits[0, node, chain.token_ids[node + 1]] = 5.0
    for min_tokens in range(1, 10):
        budget = Budget(100, min_tokens, (end,), (), 4096)
        case = make_case(chain, Sequence(SamplingParams(), budget), logits)
        walk(case.logits, case.tables, case.state)
        emitted = case.state.path[0, 32:48].tolist()
        assert emitted.index(end) == min_tokens


def test_a_nan_is_never_drawn_and_an_empty_row_gives_the_lowest_id() -> None:
    values = np.zeros(VOCAB)
    values[0], values[1] = np.nan, 1.0
    assert tokens_of_seeds(values, SamplingParams(), 1) == {1}
    everything = tokens_of_seeds(values, SamplingParams(temperature=1.0))
    assert 0 not in everything and len(everything) > 50
    assert tokens_of_seeds(np.full(VOCAB, -np.inf), SamplingParams(temperature=1.0), 3) == {0}


def test_penalties_count_the_emitted_root_and_repetition_the_prompt(
    rng: np.random.Generator,
) -> None:
    row = np.zeros(VOCAB, np.float32)
    row[:] = 1.0
    sampling = SamplingParams(
        presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0, temperature=1.0
    )
    sequence = Sequence(sampling, Budget(100), prompt=(2, 3), emitted=(3, 4, 4))
    values = edited(row, sequence, [5])
    assert values[[0, 2, 3, 4, 5]].tolist() == [1.0, 0.5, -0.25, -0.5, -0.25]


CORNERS: dict[str, tuple[float, ...]] = {
    "temperature": (1e-45, 1e-6, 1.0, 100.0),
    "top_p": (1e-45, 0.5, 1.0),
    "top_k": (0, 1, 63, 64, 65, VOCAB, 1 << 20),
    "min_p": (0.0, 1e-45, 1.0),
    "presence_penalty": (-2.0, 0.0, 2.0),
    "frequency_penalty": (-2.0, 0.0, 2.0),
    "repetition_penalty": (limits.MIN_REPETITION, 1.0, 10.0),
}
POISON = VOCAB + 7


def drawn_at_corners(rng: np.random.Generator, margin: float | None = None) -> set[int]:
    """Tokens of 300 rows at corners of the bounds, over scratch that holds a foreign id."""
    found = set()
    for _ in range(300):
        values = {name: rng.choice(corners).item() for name, corners in CORNERS.items()}
        bias = ((3, float(rng.choice([-100.0, 100.0]))),)
        values["top_k"] = int(values["top_k"])
        sampling = SamplingParams(**values, logit_bias=bias, seed=int(rng.integers(1 << 63)))
        case = lone_case(rng.normal(0, 30, VOCAB), sampling, prompt=(1, 2, 3), emitted=(2, 4))
        case.state.host[1].ids[:] = POISON
        if margin is not None:
            case.state.sampling[0].numpy().view(np.float64)[params.MARGIN] = margin
        token = drawn(case)[0]
        assert token == POISON or case.probabilities(0)[token] > 0 or margin
        found.add(token)
    return found


def test_no_corner_of_the_bounds_draws_what_the_row_does_not_hold(
    rng: np.random.Generator,
) -> None:
    assert POISON not in drawn_at_corners(rng)


def test_a_row_without_survivors_draws_what_an_earlier_row_left(rng: np.random.Generator) -> None:
    assert POISON in drawn_at_corners(rng, margin=-1.0)


def test_words_pack_and_unpack(rng: np.random.Generator) -> None:
    for _ in range(50):
        sequence = cases.random_sequence(rng, VOCAB)
        words = np.full(params.SAMPLING_WORDS, -1, np.int32)
        params.pack(sequence.params, sequence.budget, sequence.choice_index, words)
        found = params.unpack(words)
        for name in ("presence_penalty", "frequency_penalty", "repetition_penalty", "top_k"):
            assert getattr(found, name) == getattr(sequence.params, name)
        assert (found.seed, found.choice_index) == (sequence.params.seed, sequence.choice_index)
        temperature = sequence.params.temperature
        assert found.scale == (1.0 / temperature if temperature else 0.0)
        assert (found.min_tokens, found.num_emitted) == (sequence.budget.min_tokens, 0)
