"""Selection and the sampler on the device at the full vocabulary, against brute force."""

import dataclasses
import random
from types import ModuleType

import numpy as np
import pytest
import torch

from services.contract.sampling import Budget, SamplingParams
from services.kernels.cases import HYDRA27, make_tree
from services.kernels.sample import cases, kernel, reference
from services.kernels.sample.cases import Sequence
from services.kernels.sample.state import SampleState
from services.kernels.select import kernel as select_kernel
from services.kernels.select import reference as select_reference
from services.kernels.tree_tables import TableViews
from tests.sampling import distribution, grid_words, make_case

pytestmark = pytest.mark.gpu
VOCAB, POINTS, BATCH = 248_320, 65_536, 1024
PAPER = SamplingParams(temperature=0.6, top_k=20, top_p=0.95, presence_penalty=1.0, seed=7)
WAYS = {
    "greedy": SamplingParams(frequency_penalty=0.5, num_logprobs=3),
    "paper": dataclasses.replace(PAPER, num_logprobs=3),
    "temperature 1": dataclasses.replace(PAPER, temperature=1.0, processed_logprobs=True),
    "top-p": SamplingParams(temperature=0.6, top_p=0.95, seed=8),
    "top-p overflows": SamplingParams(temperature=1.0, top_p=0.95, repetition_penalty=1.1, seed=9),
    "everything": SamplingParams(temperature=1.0, seed=10),
    "top-k overflows": SamplingParams(temperature=1.0, top_k=3000, seed=11),
}
BUDGET = Budget(64, 8, (5,), (9, 11), 4096)


def on_device(state: SampleState) -> SampleState:
    names = [f.name for f in dataclasses.fields(state) if f.init]
    values = {name: getattr(state, name) for name in names}
    return SampleState(**{n: v.cuda() if torch.is_tensor(v) else v for n, v in values.items()})


def tied(rng: np.random.Generator, rows: int, vocab: int) -> torch.Tensor:
    values = np.round(rng.normal(0, 4, (rows, vocab))).astype(np.float32) / np.float32(4)
    values[:, rng.integers(0, vocab, 1 + vocab // 8)] = rng.choice([np.nan, -0.0, 0.0, -np.inf])
    return torch.from_numpy(values).cuda()


def ranked(backend: ModuleType, logits: torch.Tensor, k: int, lowest_first: bool) -> tuple:
    values = torch.full((logits.shape[0], k), float("nan"), device="cuda")
    ids = torch.full((logits.shape[0], k), -9, dtype=torch.int32, device="cuda")
    backend.top_ranked(logits, k, values, ids, lowest_first)
    return values.view(torch.int32), ids


def test_selection_is_byte_equal_on_6840_configurations(rng: np.random.Generator) -> None:
    wrong, seen, orders = 0, 0, 0
    for vocab in (1000, 8192, 50_000, VOCAB):
        rows = {1000: 1500, 8192: 1500, 50_000: 380, VOCAB: 40}[vocab]
        logits = tied(rng, rows, vocab)
        for lowest_first in (True, False):
            expected = ranked(select_reference, logits, 20, lowest_first)
            found = ranked(select_kernel, logits, 20, lowest_first)
            equal = (expected[0] == found[0]).all(1) & (expected[1] == found[1]).all(1)
            wrong, seen = wrong + int((~equal).sum()), seen + rows
        other = ranked(select_kernel, logits, 20, True)
        orders += int((other[1] != found[1]).any(1).sum())
    assert seen >= 6840 and wrong == 0
    # The control: the other tie order differs on most of these rows.
    assert orders > seen // 4


@pytest.mark.parametrize("name", WAYS)
def test_walk_is_the_references_at_the_full_vocabulary(
    rng: np.random.Generator, seed: int, name: str
) -> None:
    random.seed(seed)
    emitted = tuple(int(t) for t in rng.integers(0, VOCAB, 6))
    sequence = Sequence(WAYS[name], BUDGET, (1, 2, 3), emitted, 2)
    tree = cases.with_tokens(make_tree(HYDRA27[:5]), VOCAB, rng)
    logits = cases.make_logits(1, VOCAB, rng, 0.0625)
    case = make_case(tree, sequence, logits)
    state = on_device(case.state)
    reference.walk(logits, case.tables, case.state)
    device_logits, tables = logits.cuda(), TableViews(case.tables.block.cuda())
    kernel.walk(device_logits, tables, state)
    assert torch.equal(case.state.drawn[:, :5], state.drawn[:, :5].cpu())
    for part in ("path", "output_counts", "sampling", "logprob_ids"):
        assert torch.equal(getattr(case.state, part), getattr(state, part).cpu()), part
    values = case.state.logprob_values, state.logprob_values.cpu()
    torch.testing.assert_close(*values, rtol=3e-7, atol=3e-7, equal_nan=True)


def grid_error(params: SamplingParams, claimed: SamplingParams, logits: torch.Tensor) -> float:
    """Worst |count - M p| over the rows of a small tree, one launch a batch of grid points."""
    rng = np.random.default_rng(5)
    tree = cases.with_tokens(make_tree((-1, 0, 1, 1)), VOCAB, rng)
    sequence = Sequence(params, BUDGET, (1, 2, 3), tuple(range(40, 60)))
    case = make_case(tree, sequence, logits)
    state = dataclasses.replace(on_device(case.state), max_sequences=BATCH)
    tables = TableViews(case.tables.block.cuda().expand(BATCH, -1))
    words = torch.from_numpy(grid_words(POINTS).view(np.int64)).cuda()
    rows = logits.cuda().expand(BATCH, -1, -1)
    counts = torch.zeros(4, VOCAB, dtype=torch.int64, device="cuda")
    for start in range(0, POINTS, BATCH):
        given = words[start : start + BATCH, None].expand(-1, 32).contiguous()
        kernel.draw(rows, tables, state, state.drawn, given)
        for node in range(4):
            counts[node] += torch.bincount(state.drawn[:, node], minlength=VOCAB)
    worst = 0.0
    true = dataclasses.replace(sequence, params=claimed)
    for node in range(4):
        exact = POINTS * distribution(case.row(node), true, case.path_tokens(node))
        worst = max(worst, float(np.abs(counts[node].cpu().numpy() - exact).max()))
    return worst


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_grid_counts_equal_probabilities(rng: np.random.Generator, temperature: float) -> None:
    params = dataclasses.replace(PAPER, temperature=temperature)
    logits = torch.from_numpy(rng.normal(0, 2, (1, 32, VOCAB)).astype(np.float32))
    assert grid_error(params, params, logits) <= 2
    warmer = dataclasses.replace(params, temperature=temperature * 1.01)
    assert grid_error(warmer, params, logits) > 20
