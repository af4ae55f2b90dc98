"""The matrix product by torch's library, and the self-test of its rows."""

from collections.abc import Callable
from typing import Final

import torch

from services.contract.limits import MAX_ROWS

FIXED_ROWS: Final = True
_Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Do what linear.linear says."""
    if out.dtype == x.dtype:
        torch.mm(x, weight.t(), out=out)
    else:
        out.copy_(x.to(out.dtype) @ weight.t().to(out.dtype))


def row_invariance_check(weight: torch.Tensor, rows: int, product: _Product = linear) -> bool:
    """Do what linear.row_invariance_check says, of any product."""
    generator = torch.Generator().manual_seed(20260928)
    shape = (MAX_ROWS, weight.shape[1])
    x = torch.randn(shape, generator=generator).to(weight.device, weight.dtype)
    expected = _result(product, x, weight)
    poisoned = torch.full((rows, shape[1]), torch.nan, dtype=x.dtype, device=x.device)
    for shift in (0, 5, rows - 1):
        order = (torch.arange(MAX_ROWS, device=x.device) * 7 + shift) % rows
        for kept in (slice(None), slice(0, 1), slice(3, 17)):
            operand = poisoned.clone()
            operand[order[kept]] = x[kept]
            if not torch.equal(_result(product, operand, weight)[order[kept]], expected[kept]):
                return False
    return True


def _result(product: _Product, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty((x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device)
    product(x, weight, out)
    return out
