"""A foreign chain for the paired rule: another project's recurrent kernel on our operands."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

import torch
import torch.nn.functional as F

from benchmarks.proof.operands import PATHS, Operands, Results

Kernel = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def foreign_kernel(device: str) -> tuple[str, Kernel]:
    """Return the name and the kernel: fla's fused one on a GPU, transformers' own on a CPU.

    Raises  ImportError where the package is not installed.
    """
    if device == "cuda":
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule as fused

        return f"fla {version('fla-core')} fused recurrent kernel", fused
    from transformers.models.qwen3_next.modeling_qwen3_next import (
        torch_recurrent_gated_delta_rule as recurrent,
    )

    return f"transformers {version('transformers')} recurrent rule", recurrent


def foreign_chain(operands: Operands, kernel: Kernel) -> Results:
    """Run every path alone through the kernel, all layers as one batch.

    Numbers  operands are widened to fp32, so that outputs are fp32 on both sides.
    """
    start = operands.case.recurrent[0, 0].transpose(-1, -2).contiguous()
    outputs, states = [], []
    for path in PATHS:
        *rows, log_decay, beta = _rows(operands, path)
        out, last = kernel(
            *rows,
            g=log_decay,
            beta=beta,
            initial_state=start.clone(),
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        outputs.append(out[:, -1].clone())
        states.append(last.transpose(-1, -2).clone())
    return Results(torch.stack(outputs, 1), torch.stack(states))


def _rows(operands: Operands, path: list[int]) -> tuple[torch.Tensor, ...]:
    """Return q, k [L, T, Hk, dk], v [L, T, Hv, dv], log decay and beta [L, T, Hv] of a path."""
    case, (heads, dv) = operands.case, operands.size
    dk = case.recurrent.shape[-1]
    mixed, ab = case.mixed_ring[0][:, path].float(), case.ab_ring[0][:, path].float()
    width = (mixed.shape[-1] - heads * dv) // 2
    query, key, value = mixed.split((width, width, heads * dv), -1)
    soft = F.softplus(ab[:, :, 0] + case.dt_bias[:, None])
    log_decay = -case.a_log.exp()[:, None] * soft
    rows = (query.unflatten(-1, (-1, dk)), key.unflatten(-1, (-1, dk)))
    rows += (value.unflatten(-1, (-1, dv)),)
    return (*(x.contiguous() for x in rows), log_decay, ab[:, :, 1].sigmoid())
