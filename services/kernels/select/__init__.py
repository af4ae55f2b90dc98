"""Ordered selection: the best values of each row of logits and their ids."""

import torch

from services.kernels.dispatch import backend

MAX_RANKED = 64


def top_ranked(
    logits: torch.Tensor,
    k: int,
    values: torch.Tensor,
    ids: torch.Tensor,
    lowest_first: bool = True,
    totals: torch.Tensor | None = None,
) -> None:
    """Write the k best of each row, best first; column 0 is the argmax.

    Shapes  logits [R, V] fp32; values [R, k] fp32; ids [R, k] int32; k <= 64 and <= V.
    Args    lowest_first: order of the ids of equal values; False puts the highest first.
            totals [R] fp32: gets the logarithm of each row's sum of exponentials.
    Numbers both zeros are equal; a NaN counts, and is returned, as -inf. Totals are rounded as
            the device likes: only drafting reads them.
    """
    backend("select", logits.device.type).top_ranked(logits, k, values, ids, lowest_first, totals)
