"""Mean cross entropy of hidden rows against a tied head, made in row blocks."""

from typing import Any

import torch

from models.recipe.arithmetic import block_loss
from models.recipe.operations import Operations


class HeadLoss(torch.autograd.Function):
    """Mean cross entropy of hidden @ head^T; the gradient is made on the way forward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.Tensor,
        labels: torch.Tensor,
        block: int,
        operations: Operations,
    ) -> torch.Tensor:
        """Return the mean loss; only whole blocks use the compiled function."""
        scale = 1.0 / (labels >= 0).sum().clamp(min=1).float()
        hidden_gradient = torch.empty_like(hidden)
        head_gradient = torch.zeros(head.shape, dtype=torch.float32, device=head.device)
        total = torch.zeros((), device=hidden.device)
        for start in range(0, hidden.shape[0], block):
            rows, wanted = hidden[start : start + block], labels[start : start + block]
            function = operations.block_loss if rows.shape[0] == block else block_loss
            loss, gradient = function(rows @ head.t(), wanted, scale)
            total += loss
            hidden_gradient[start : start + block] = gradient @ head
            head_gradient += gradient.t() @ rows
        ctx.save_for_backward(hidden_gradient, head_gradient.to(head.dtype))
        return total * scale

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of hidden and head."""
        hidden, head = ctx.saved_tensors
        return hidden * gradient.to(hidden.dtype), head * gradient.to(head.dtype), None, None, None
