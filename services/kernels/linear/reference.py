"""The matrix product by torch's library, and the self-test of its rows."""

import torch

from services.contract.limits import MAX_ROWS


def linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Do what linear.linear says."""
    if out.dtype == x.dtype:
        torch.mm(x, weight.t(), out=out)
    else:
        out.copy_(x.to(out.dtype) @ weight.t().to(out.dtype))


def row_invariance_check(weight: torch.Tensor, rows: int) -> bool:
    """Do what linear.row_invariance_check says."""
    generator = torch.Generator().manual_seed(20260928)
    shape = (MAX_ROWS, weight.shape[1])
    x = torch.randn(shape, generator=generator).to(weight.device, weight.dtype)
    expected = _product(x, weight)
    poisoned = torch.full((rows, shape[1]), torch.nan, dtype=x.dtype, device=x.device)
    for shift in (0, 5, rows - 1):
        order = (torch.arange(MAX_ROWS, device=x.device) * 7 + shift) % rows
        for kept in (slice(None), slice(0, 1), slice(3, 17)):
            operand = poisoned.clone()
            operand[order[kept]] = x[kept]
            if not torch.equal(_product(operand, weight)[order[kept]], expected[kept]):
                return False
    return True


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty((x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device)
    linear(x, weight, out)
    return out
