"""Ordered selection by a stable sort."""

import math

import torch


def top_ranked(
    logits: torch.Tensor,
    k: int,
    values: torch.Tensor,
    ids: torch.Tensor,
    lowest_first: bool = True,
    totals: torch.Tensor | None = None,
) -> None:
    """Do what select.top_ranked says."""
    clean = torch.where(logits.isnan(), -math.inf, logits)
    if lowest_first:
        order = torch.sort(clean, dim=1, descending=True, stable=True).indices
    else:
        flipped = torch.sort(clean.flip(1), dim=1, descending=True, stable=True).indices
        order = logits.shape[1] - 1 - flipped
    ids.copy_(order[:, :k])
    values.copy_(torch.gather(clean, 1, order[:, :k]))
    if totals is not None:
        torch.logsumexp(clean, 1, out=totals)
