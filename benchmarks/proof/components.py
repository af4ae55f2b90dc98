"""Components: scan and publication of 48 recurrent instances, attention, selection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.proof.check import Check
from benchmarks.proof.operands import PATHS, TREE, Operands, Results
from benchmarks.proof.paired import paired
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
    del chain
    yield from paired(rules, name, operands, found, operands.sequential(torch.float64))


def equal_parts(ours: torch.Tensor, theirs: torch.Tensor) -> list[bool]:
    """Say of each part whether every bit is equal."""
    return [torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)]


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
