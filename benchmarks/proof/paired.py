"""The paired rule: our error against float64 is bounded by a foreign chain's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import comb
from typing import Any

import torch

from benchmarks.proof.check import Check, left_out
from benchmarks.proof.native import foreign_chain, foreign_kernel
from benchmarks.proof.operands import Operands, Results

FAMILY, PARTS = "components", ("outputs", "states")
PLANTED = 1 + 1e-5


@dataclass(frozen=True)
class Measures:
    """Mean square and maximum of every cell [L, 28, Hv] of a tensor."""

    square: torch.Tensor
    largest: torch.Tensor

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Measures:
        """Measure a tensor [L, 28, Hv, ...], one instance at a time."""
        layers = [layer.flatten(2).double() for layer in tensor]
        square = torch.stack([layer.square().mean(2) for layer in layers])
        return cls(square, torch.stack([layer.abs().amax(2) for layer in layers]))

    @classmethod
    def between(cls, tensor: torch.Tensor, exact: torch.Tensor, factor: float = 1.0) -> Measures:
        """Measure factor * tensor - exact."""
        parts = [
            cls.of((a.double() * factor - b)[None]) for a, b in zip(tensor, exact, strict=True)
        ]
        squares, maxima = zip(*((part.square, part.largest) for part in parts), strict=True)
        return cls(torch.cat(squares), torch.cat(maxima))

    def pooled(self, *dims: int) -> Measures:
        """Take some of the dimensions together."""
        return Measures(self.square.mean(dims), self.largest.amax(dims))


@dataclass(frozen=True)
class Errors:
    """The measures of one part: ours, the foreign chain's, ours planted, and float64's size."""

    ours: Measures
    native: Measures
    planted: Measures
    exact: Measures

    def pooled(self, *dims: int) -> Errors:
        """Take some of the dimensions of all measures together."""
        sides = self.ours, self.native, self.planted, self.exact
        return Errors(*(side.pooled(*dims) for side in sides))


def keeps(
    rules: dict[str, Any], ours: Measures, native: Measures, exact: Measures, factor: float
) -> torch.Tensor:
    """Say where RMS, with the paired factor, and maximum, with `factor`, are within bounds."""
    floors = 2.0 ** rules["relative_floor_exponent"], 2.0 ** rules["absolute_floor_exponent"]
    bound = rules["paired_factor"] * native.square.sqrt() + floors[0] * exact.square.sqrt()
    top = factor * native.largest + floors[0] * exact.largest + floors[1]
    return (ours.square.sqrt() <= bound + floors[1]) & (ours.largest <= top)


def paired(
    rules: dict[str, Any], name: str, operands: Operands, found: Results, exact: Results
) -> Iterator[Check]:
    """Yield the rule by instance, and with each side as native on single tensors and cells."""
    try:
        chain, kernel = foreign_kernel(operands.device)
    except ImportError as error:
        yield left_out(FAMILY, f"paired rule, {name}", f"not run: {error.name} is not installed")
        return
    native = foreign_chain(operands, kernel)
    errors = {part: _errors(part, found, native, exact) for part in PARTS}
    yield by_instance(rules, name, chain, errors)
    check = either_side(rules, name, chain, errors)
    yield replace(check, detail={**check.detail, **_equal_rows(found, native)})


def _errors(part: str, found: Results, native: Results, exact: Results) -> Errors:
    ours, theirs, wide = (getattr(x, part) for x in (found, native, exact))
    if part == "states":
        ours, theirs, wide = (x.transpose(0, 1) for x in (ours, theirs, wide))
    sides = [Measures.between(ours, wide), Measures.between(theirs, wide)]
    return Errors(*sides, Measures.between(ours, wide, PLANTED), Measures.of(wide))


def _equal_rows(found: Results, native: Results) -> dict[str, int]:
    """Count the tensors that equal the foreign chain's bit for bit, outputs written in bf16."""
    pairs = found.outputs.bfloat16().flatten(0, 1), native.outputs.bfloat16().flatten(0, 1)
    outputs = sum(torch.equal(a, b) for a, b in zip(*pairs, strict=True))
    pairs = found.states.flatten(0, 1), native.states.flatten(0, 1)
    states = sum(torch.equal(a, b) for a, b in zip(*pairs, strict=True))
    return {"outputs_equal_in_bf16": outputs, "states_equal_in_fp32": states}


def by_instance(rules: dict[str, Any], name: str, chain: str, errors: dict[str, Errors]) -> Check:
    """Apply the rule to each of the 48 instances, its 28 tensors taken together."""
    factor, ratios = rules["independent_max_factor"], {}
    count = held = 0
    fired = True
    for part, each in errors.items():
        all28 = each.pooled(1, 2)
        inside = keeps(rules, all28.ours, all28.native, all28.exact, factor)
        count, held = count + len(inside), held + int(inside.sum())
        fired &= not bool(keeps(rules, all28.planted, all28.native, all28.exact, factor).any())
        rms = (all28.ours.square / all28.native.square).sqrt()
        top = all28.ours.largest / all28.native.largest
        ratios[part] = [float(x) for x in (rms.median(), rms.max(), top.max())]
    detail = {"native": chain, "ratios_rms_median_rms_max_largest": ratios}
    return Check(FAMILY, f"paired rule by instance, {name}", count, held, fired, detail)


def either_side(rules: dict[str, Any], name: str, chain: str, errors: dict[str, Errors]) -> Check:
    """Apply the whole rule with each chain as native; ours must not lie outside more often.

    Two sound chains round apart, so a share of single tensors lies outside whichever of them is
    called native. A sign test at the rules' level says whether ours does so more often.
    """
    detail: dict[str, Any] = {"native": chain}
    count = held = 0
    fired = False
    for part, cells in errors.items():
        for level, each in (("tensors", cells.pooled(2)), ("cells", cells)):
            ours, theirs = outside(rules, each.ours, each), outside_swapped(rules, each)
            detail[f"{part}, {level}"] = {
                "of": each.ours.square.numel(),
                "ours_outside": ours,
                "native_outside": theirs,
            }
            count += 1
            held += not is_more_often(ours, theirs, rules["sign_alpha"])
            planted = outside(rules, each.planted, each)
            fired |= is_more_often(planted, theirs, rules["sign_alpha"])
    return Check(FAMILY, f"paired rule, either side native, {name}", count, held, fired, detail)


def outside(rules: dict[str, Any], ours: Measures, each: Errors) -> int:
    """Count what of ours lies outside the rule, the foreign chain being native."""
    inside = keeps(rules, ours, each.native, each.exact, rules["paired_factor"])
    return int((~inside).sum())


def outside_swapped(rules: dict[str, Any], each: Errors) -> int:
    """Count what of the foreign chain lies outside the rule, ours being native."""
    inside = keeps(rules, each.native, each.ours, each.exact, rules["paired_factor"])
    return int((~inside).sum())


def is_more_often(ours: int, theirs: int, alpha: float) -> bool:
    """Say whether `ours` of both is too many for a fair coin (one-sided sign test)."""
    total = ours + theirs
    if ours <= theirs:
        return False
    if total > 1000:
        return (ours - theirs) / total**0.5 > 3.09  # the normal tail at 0.001
    tail = sum(comb(total, k) for k in range(ours, total + 1))
    return tail < alpha * 2**total
