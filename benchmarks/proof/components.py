"""Components: scan and publication of 48 recurrent instances, attention, selection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.proof.check import Check
from benchmarks.proof.operands import PATHS, TREE, Operands, Results
from benchmarks.proof.second_process import digests_elsewhere, operand_sets
from benchmarks.proof.world import World
from services.kernels.state_words import PATH_EPOCH

FAMILY = "components"


def run(world: World) -> Iterator[Check]:
    """Yield the checks of the paper's VII-D and VII-G."""
    from benchmarks.proof.attention import attention_checks
    from benchmarks.proof.selection import selection

    rules, device = world.rules[FAMILY], world.device
    digests = []
    for kind, seed, scale in operand_sets(rules):
        operands = Operands(rules, seed, scale, device)
        found = operands.tree()
        digests.append(found.digest())
        yield from operand_checks(rules, f"{kind} {seed}", operands, found)
        del operands, found
    if device == "cuda":
        torch.cuda.empty_cache()  # the second process needs the memory
    again = digests_elsewhere("gdn", device)
    same = sum(a == b for a, b in zip(digests, again, strict=True))
    control = len(set(digests)) == len(digests)
    yield Check(FAMILY, "GDN bits in a second process", len(digests), same, control)
    yield from controls(Operands(rules, rules["calibration_seeds"][0], 1.0, device))
    yield from attention_checks(rules, device)
    yield selection(rules, device)


def operand_checks(
    rules: dict[str, Any], name: str, operands: Operands, found: Results
) -> Iterator[Check]:
    """Compare one operand set with the plain chain in bits, and with float64 by the rule."""
    chain = operands.chain()
    outputs = equal_parts(found.outputs.flatten(0, 1), chain.outputs.flatten(0, 1))
    states = equal_parts(found.states.flatten(0, 1), chain.states.flatten(0, 1))
    moved = equal_parts(found.outputs.flatten(0, 1), chain.outputs.roll(1, 1).flatten(0, 1))
    yield Check(FAMILY, f"outputs bitwise, {name}", len(outputs), sum(outputs), not all(moved))
    moved = equal_parts(found.states.flatten(0, 1), chain.states.roll(1, 0).flatten(0, 1))
    yield Check(FAMILY, f"states bitwise, {name}", len(states), sum(states), not all(moved))
    exact, plain = operands.sequential(torch.float64), operands.sequential(torch.float32)
    yield paired_tensors(rules, name, found, chain, exact)
    yield cells(rules, name, (found, chain, exact), plain)
    yield independent(rules, name, found, plain, exact)


def equal_parts(ours: torch.Tensor, theirs: torch.Tensor) -> list[bool]:
    """Say of each part whether every bit is equal."""
    return [torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)]


def within(
    rules: dict[str, Any],
    ours: torch.Tensor,
    native: torch.Tensor,
    exact: torch.Tensor,
    max_factor: float = 0.0,
) -> torch.Tensor:
    """Say of each part [N, ...] whether RMS and maximum keep the paired rule.

    Args    max_factor: factor of the maximum, if not that of the rule.
    """
    ours, native, exact = (x.double().flatten(1) for x in (ours, native, exact))
    floors = 2.0 ** rules["relative_floor_exponent"], 2.0 ** rules["absolute_floor_exponent"]
    factors = rules["paired_factor"], max_factor or rules["paired_factor"]
    held = torch.ones(len(ours), dtype=torch.bool, device=ours.device)
    for measure, factor in zip((_rms, _largest), factors, strict=True):
        bound = factor * measure(native - exact) + floors[0] * measure(exact) + floors[1]
        held &= measure(ours - exact) <= bound
    return held


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(1).sqrt()


def _largest(x: torch.Tensor) -> torch.Tensor:
    return x.abs().amax(1)


def paired_tensors(
    rules: dict[str, Any], name: str, found: Results, chain: Results, exact: Results
) -> Check:
    """Apply the paper's rule, plain decoding being the native chain: Table X."""
    count = passed = 0
    fired = True
    for part in ("outputs", "states"):
        ours, native, wide = (getattr(x, part).flatten(0, 1) for x in (found, chain, exact))
        held = within(rules, ours, native, wide)
        count, passed = count + len(held), passed + int(held.sum())
        fired &= not bool(within(rules, ours * (1 + 1e-5), native, wide).any())
    return Check(FAMILY, f"paired rule, {name}", count, passed, fired)


def cells(rules: dict[str, Any], name: str, triple: tuple[Results, ...], plain: Results) -> Check:
    """Count cells (instance, node or publication, head) outside the rule: Table XIII.

    The detail counts the same cells with a torch fp32 recurrence as the native side: there a
    cell compares the rounding of two sums of a few numbers, so a share lies outside either way.
    """
    chosen, detail, count, held, fired = rules["publications"], {}, 0, 0, True
    for kind in ("outputs", "states"):
        parts = [_cells(x, kind, chosen) for x in (*triple, plain)]
        found, chain, exact, torch32 = parts
        inside = within(rules, found, chain, exact)
        count, held = count + len(inside), held + int(inside.sum())
        fired &= not bool(within(rules, found * (1 + 1e-4), chain, exact).all())
        detail[f"{kind}_outside"] = f"{int((~inside).sum())} of {len(inside)}"
        ours = int((~within(rules, found, torch32, exact)).sum())
        theirs = int((~within(rules, torch32, found, exact)).sum())
        detail[f"{kind}_outside_against_torch"] = {"ours": ours, "torch_against_ours": theirs}
    return Check(FAMILY, f"cells, {name}", count, held, fired, detail)


def _cells(results: Results, kind: str, publications: list[int]) -> torch.Tensor:
    if kind == "outputs":
        return results.outputs.flatten(0, 2)
    return results.states[publications].flatten(0, 2)


def independent(
    rules: dict[str, Any], name: str, found: Results, plain: Results, exact: Results
) -> Check:
    """Apply the rule to each instance's 28 nodes, a torch fp32 recurrence being native."""
    factor = rules["independent_max_factor"]
    count = passed = 0
    fired, ratios = True, []
    for part, order in (("outputs", 0), ("states", 1)):
        ours, native, wide = (getattr(x, part).transpose(0, order) for x in (found, plain, exact))
        held = within(rules, ours, native, wide, factor)
        count, passed = count + len(held), passed + int(held.sum())
        fired &= not bool(within(rules, ours * (1 + 1e-5), native, wide, factor).any())
        errors = [(x.double() - wide).flatten(1) for x in (ours, native)]
        ratios.append([float((m(errors[0]) / m(errors[1])).max()) for m in (_rms, _largest)])
    detail = {"largest_ratio_rms_max": dict(zip(("outputs", "states"), ratios, strict=True))}
    return Check(FAMILY, f"independent torch chain, {name}", count, passed, fired, detail)


def controls(operands: Operands) -> Iterator[Check]:
    """Yield the planted component faults; each must be seen on every path it can touch."""
    honest = {node: operands.replay(PATHS[node]) for node in range(TREE.num_nodes)}
    quiet = all(torch.equal(operands.replay(PATHS[n]), honest[n]) for n in (0, 14, 27))
    yield _siblings(operands, honest, quiet)
    yield _swapped(operands, honest, quiet)
    yield _stale(operands, honest, quiet)
    yield _zero_replay(operands, honest, quiet)
    yield _poison(operands, honest)


def _siblings(operands: Operands, honest: dict[int, torch.Tensor], quiet: bool) -> Check:
    pairs = [
        (node, other)
        for node in range(1, TREE.num_nodes)
        for other in TREE.children(TREE.parents[node])
        if other != node
    ]
    seen = sum(not torch.equal(operands.replay(PATHS[b]), honest[a]) for a, b in pairs)
    return Check(FAMILY, "planted sibling substitution", len(pairs), seen, quiet)


def _swapped(operands: Operands, honest: dict[int, torch.Tensor], quiet: bool) -> Check:
    ring = operands.case.mixed_ring
    kept = ring.clone()
    ring[:, [0, 1]] = kept[:, [1, 0]]
    seen = sum(not torch.equal(operands.replay(PATHS[n]), honest[n]) for n in honest)
    ring.copy_(kept)
    return Check(FAMILY, "planted swapped rings", len(honest), seen, quiet)


def _stale(operands: Operands, honest: dict[int, torch.Tensor], quiet: bool) -> Check:
    """A path of another epoch must publish nothing: the target set keeps its NaN."""
    path = operands.case.path
    path[0, PATH_EPOCH] += 1
    seen = sum(bool(operands.replay(PATHS[n]).isnan().all()) for n in honest)
    path[0, PATH_EPOCH] -= 1
    return Check(FAMILY, "planted stale metadata", len(honest), seen, quiet)


def _zero_replay(operands: Operands, honest: dict[int, torch.Tensor], quiet: bool) -> Check:
    start = operands.case.recurrent[0, 0]
    seen = sum(not torch.equal(start, honest[n]) for n in honest)
    return Check(FAMILY, "planted zero replay", len(honest), seen, quiet)


def _poison(operands: Operands, honest: dict[int, torch.Tensor]) -> Check:
    """NaN off the path changes no bit of the published state; NaN on it shows."""
    rings = operands.case.mixed_ring, operands.case.ab_ring
    kept = [ring.clone() for ring in rings]
    held, fired = 0, True
    for node, path in enumerate(PATHS):
        for ring in rings:
            ring[0, :, [n for n in range(32) if n not in path]] = torch.nan
        held += torch.equal(operands.replay(path), honest[node])
        rings[0][0, :, path[-1]] = torch.nan
        fired &= bool(operands.replay(path).isnan().any())
        for ring, copy in zip(rings, kept, strict=True):
            ring.copy_(copy)
    return Check(FAMILY, "off-path poison", len(PATHS), held, fired)
