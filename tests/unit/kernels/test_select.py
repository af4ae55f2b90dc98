"""Ordered selection equals the reference byte for byte, ties included."""

from types import ModuleType

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from services.kernels.select import cpu, kernel, kernel_ranked, reference, top_ranked

Result = tuple[torch.Tensor, torch.Tensor]


def tied_logits(rng: np.random.Generator, rows: int, vocab: int) -> torch.Tensor:
    """Rows with many equal values, both zeros, NaN and infinities."""
    scale = float(rng.choice([1.0, 4.0, 1000.0]))
    values = np.round(rng.normal(0, scale, (rows, vocab))).astype(np.float32) / np.float32(4)
    for special in (np.nan, -0.0, 0.0, -np.inf, np.inf):
        if rng.random() < 0.5:
            values[:, rng.integers(0, vocab, 1 + vocab // 8)] = special
    if rng.random() < 0.05:
        values[:] = -np.inf
    return torch.from_numpy(values)


def ranked(backend: ModuleType, logits: torch.Tensor, k: int, lowest_first: bool = True) -> Result:
    values = torch.full((logits.shape[0], k), float("nan"))
    ids = torch.full((logits.shape[0], k), -9, dtype=torch.int32)
    backend.top_ranked(logits, k, values, ids, lowest_first)
    return values, ids


@triton.jit
def nothing(logits, row, values, ids, vocab, K, LOWEST_FIRST):
    """Stand in for the scans."""
    tl.static_assert(K > 0)


def same_bytes(first: Result, second: Result) -> bool:
    return all(
        a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(first, second, strict=True)
    )


def test_ten_thousand_rows_are_equal_byte_for_byte(rng: np.random.Generator) -> None:
    for index in range(200):
        vocab = int(rng.integers(4, 200))
        k = int(rng.integers(1, min(vocab, 64) + 1))
        logits = tied_logits(rng, 50, vocab)
        lowest_first = index % 2 == 0
        expected = ranked(reference, logits, k, lowest_first)
        assert same_bytes(ranked(cpu, logits, k, lowest_first), expected)


def test_the_other_tie_order_is_found(rng: np.random.Generator) -> None:
    logits = torch.from_numpy(np.round(rng.normal(0, 2, (50, 100))).astype(np.float32))
    lowest, highest = (ranked(cpu, logits, 4, order) for order in (True, False))
    assert torch.equal(lowest[0], highest[0])
    assert not same_bytes(lowest, highest)


def test_column_zero_is_the_lowest_id_of_the_maximum() -> None:
    logits = torch.zeros(1, 40)
    logits[0, [9, 21, 30]] = 5.0
    assert ranked(cpu, logits, 3)[1].tolist() == [[9, 21, 30]]
    assert ranked(cpu, logits, 3, lowest_first=False)[1].tolist() == [[30, 21, 9]]
    values, ids = torch.empty(1, 1), torch.empty(1, 1, dtype=torch.int32)
    top_ranked(logits, 1, values, ids)
    assert (float(values), int(ids)) == (5.0, 9)


def assert_triton_is_the_reference(logits: torch.Tensor, k: int, lowest_first: bool) -> None:
    expected = ranked(reference, logits, k, lowest_first)
    for _ in range(2):
        assert same_bytes(ranked(kernel, logits, k, lowest_first), expected)


@pytest.mark.parametrize("tile", [1024, 4096])
def test_triton_equals_the_reference_over_several_blocks(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, tile: int
) -> None:
    monkeypatch.setattr(kernel, "TILE", tile)
    for index in range(4):
        vocab = int(rng.integers(65, 6000))
        logits = tied_logits(rng, 2, vocab)
        logits[1] = torch.from_numpy(rng.normal(0, 3, vocab).astype(np.float32))
        k = int(rng.integers(1, 65))
        assert_triton_is_the_reference(logits, k, index % 2 == 0)
    assert_triton_is_the_reference(tied_logits(rng, 2, 5), 4, True)


def test_triton_ranks_untied_rows_without_scans(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = kernel_ranked.rank_by_scans
    logits = torch.from_numpy(rng.normal(0, 3, (2, 9000)).astype(np.float32))
    monkeypatch.setattr(kernel_ranked, "rank_by_scans", nothing)
    for k in (1, 3, 20, 64):
        assert_triton_is_the_reference(logits, k, True)
    tied = torch.zeros(2, 9000)
    with pytest.raises(AssertionError):
        assert_triton_is_the_reference(tied, 20, True)
    monkeypatch.setattr(kernel_ranked, "rank_by_scans", scan)
    assert_triton_is_the_reference(tied, 20, True)


@pytest.mark.parametrize("backend", [cpu, kernel, reference])
def test_totals_are_logarithms_of_sums(rng: np.random.Generator, backend: ModuleType) -> None:
    logits = torch.from_numpy(rng.normal(0, 5, (3, 9000)).astype(np.float32))
    logits[1, 4096:] = -torch.inf
    values, ids = torch.empty(3, 4), torch.empty(3, 4, dtype=torch.int32)
    totals = torch.full((3,), torch.nan)
    backend.top_ranked(logits, 4, values, ids, True, totals)
    exact = torch.logsumexp(logits.double(), 1)
    assert float((totals - exact).abs().max()) < 1e-4
    assert float((totals - exact).abs().max()) < float((values[:, 0] - exact).abs().min())
