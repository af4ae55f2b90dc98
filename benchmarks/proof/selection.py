"""Ordered selection against sorting, in both tie conventions."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.proof.check import Check
from services.kernels import select

FAMILY = "components"
ROWS = 24


def selection(rules: dict[str, Any], device: str) -> Check:
    """Compare values and ids byte for byte; the control takes the other tie convention."""
    generator = torch.Generator().manual_seed(rules["calibration_seeds"][0])
    cases = held = other = 0
    for index in range(rules["selection_inputs"] // ROWS):
        logits = _rows(rules["selection_vocab"], index, generator)
        orders = {lowest: _sorted(logits, lowest) for lowest in (True, False)}
        for count in rules["selection_counts"]:
            for lowest in (True, False):
                values, ids = _ranked(logits.to(device), count, lowest)
                right = _matches(logits, values, ids, orders[lowest][:, :count])
                held += int(right.sum())
                other += int((~_matches(logits, values, ids, orders[not lowest][:, :count])).sum())
                cases += ROWS
    detail = {"rows_the_other_tie_convention_changes": other}
    return Check(FAMILY, "selection against sorting", cases, held, other > 0, detail)


def _rows(vocab: int, index: int, generator: torch.Generator) -> torch.Tensor:
    """Return rows: smooth, tied, almost flat, with infinities and NaN, with both zeros."""
    logits = torch.randn(ROWS, vocab, generator=generator) * 3
    if index % 4 == 1:
        logits = (logits * 2).round() / 2
    if index % 4 == 2:
        logits = logits.sign()
    if index % 4 == 3:
        logits[:, ::7] = -torch.inf
        logits[:, 3::11] = torch.nan
        logits[:, 5::13] = -0.0
    return logits


def _sorted(logits: torch.Tensor, lowest_first: bool) -> torch.Tensor:
    """Return the ids of each row from best to worst; a NaN counts as -inf."""
    clean = logits.nan_to_num(-torch.inf, torch.inf, -torch.inf) + 0.0
    if lowest_first:
        return clean.sort(dim=1, descending=True, stable=True).indices
    flipped = clean.flip(1).sort(dim=1, descending=True, stable=True).indices
    return clean.shape[1] - 1 - flipped


def _ranked(
    logits: torch.Tensor, count: int, lowest_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.full((ROWS, count), torch.nan, device=logits.device)
    ids = torch.full((ROWS, count), -1, dtype=torch.int32, device=logits.device)
    select.top_ranked(logits, count, values, ids, lowest_first)
    return values.cpu(), ids.cpu()


def _matches(
    logits: torch.Tensor, values: torch.Tensor, ids: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    picked = logits.nan_to_num(-torch.inf, torch.inf, -torch.inf).gather(1, wanted)
    return (ids == wanted).all(1) & (values == picked).all(1)
