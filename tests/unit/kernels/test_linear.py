"""The CPU's matrix product: right, and a row sees no other row."""

import pytest
import torch

from services.kernels import linear
from services.kernels.linear import cpu, reference
from services.kernels.norm.cases import normal


@pytest.mark.parametrize("shape", [(1036, 256), (256, 640), (64, 64), (10, 33)], ids=str)
def test_product_matches_float64(shape: tuple[int, int], seed: int) -> None:
    x, weight = normal(32, shape[1], seed=seed), normal(*shape, seed=seed + 1)
    out = torch.full((32, shape[0]), torch.nan)
    linear.linear(x, weight, out)
    exact = x.double() @ weight.double().t()
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-5 * shape[1] ** 0.5)


@pytest.mark.parametrize("shape", [(1036, 256), (70, 64), (10, 33)], ids=str)
def test_narrow_product_is_that_of_rounded_operands(shape: tuple[int, int], seed: int) -> None:
    x, weight = normal(32, shape[1], seed=seed), normal(*shape, seed=seed + 1)
    out = torch.full((32, shape[0]), torch.nan)
    linear.prepare(weight, narrow=True)
    linear.linear(x, weight, out)
    exact = x.bfloat16().double() @ weight.bfloat16().double().t()
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-5 * shape[1] ** 0.5)
    assert not torch.allclose(out.double(), x.double() @ weight.double().t(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("narrow", [False, True], ids=["float32", "bfloat16"])
def test_rows_keep_their_bits_at_any_row_count_and_stride(narrow: bool, seed: int) -> None:
    x, weight = normal(32, 640, seed=seed), normal(200, 640, seed=seed + 1)
    linear.prepare(weight, narrow)
    expected = torch.full((32, 200), torch.nan)
    linear.linear(x, weight, expected)
    for rows in (1, 2, 3, 5, 16, 28, 64, 256):
        wide = torch.full((rows, 700), torch.nan)
        kept = min(rows, 32)
        wide[rows - kept :, 30:670] = x[:kept]
        out = torch.full((rows, 256), torch.nan)
        linear.linear(wide[:, 30:670], weight, out[:, 7:207])
        assert torch.equal(out[rows - kept :, 7:207], expected[:kept])
        assert out[:, :7].isnan().all() and out[:, 207:].isnan().all()


@pytest.mark.parametrize("rows", [32, 64, 96, 128])
def test_self_test_passes(rows: int, seed: int) -> None:
    weight = normal(200, 256, seed=seed)
    assert linear.row_invariance_check(weight, rows)
    linear.prepare(weight, narrow=True)
    assert linear.row_invariance_check(weight, rows)
    assert not linear.needs_fixed_rows("cpu")


def test_without_pair_products_the_narrow_result_is_as_close(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(cpu, "HAS_PAIRS", False)
    x, weight = normal(5, 33, seed=seed), normal(70, 33, seed=seed + 1)
    out = torch.full((5, 70), torch.nan)
    linear.prepare(weight, narrow=True)
    linear.linear(x, weight, out)
    exact = x.bfloat16().double() @ weight.bfloat16().double().t()
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-4)


def test_self_test_fails_on_a_product_whose_rows_see_each_other(seed: int) -> None:
    def leaking(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
        torch.mm(x, weight.t(), out=out)
        out += x.nan_to_num().sum() * 1e-6

    assert not reference.row_invariance_check(normal(64, 64, seed=seed), 64, leaking)


def test_a_weight_that_was_written_to_is_laid_out_again(seed: int) -> None:
    x, weight = normal(4, 64, seed=seed), normal(70, 64, seed=seed + 1)
    first, second = torch.empty(4, 70), torch.empty(4, 70)
    linear.linear(x, weight, first)
    weight.mul_(2)
    linear.linear(x, weight, second)
    assert torch.equal(second, 2 * first)
