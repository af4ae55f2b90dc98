"""The 27B shape on a GPU: long prefixes over random weights, and its whole vocabulary."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.cycle.shapes import QWEN_27B, randomise
from benchmarks.proof.check import Check, left_out
from benchmarks.proof.world import ROOM, World, run_eagerly
from services.committer.publish import STEPS
from services.contract.limits import PAGE
from services.kernels.state_words import ACTIVE_SET
from services.model.config import ModelConfig, config_from_json
from services.model.flat import FlatWeights, empty_block
from services.model.parts import target_parts
from services.model.weights import TargetWeights, view_target
from tests.drafts import KnownDraft
from tests.ring import Ring, root_only

FAMILY = "size27b"
PATTERNS = ("mixed", "mixed", "mixed", "rejected", "full")
MOST_A_CYCLE = 16
Snapshot = dict[str, torch.Tensor]
Loaded = tuple[ModelConfig, TargetWeights]


def run(world: World) -> Iterator[Check]:
    """Yield the checks of long prefixes, then the sampler's over the whole vocabulary."""
    if world.device != "cuda":
        yield left_out(FAMILY, "prefixes of 23,000 to 46,000 tokens", "not run: needs a GPU")
        yield left_out(FAMILY, "vocabulary of 248,320", "not run: needs a GPU")
        return
    from benchmarks.proof.sampler_wide import wide_checks

    yield from wide_checks(world)
    torch.cuda.empty_cache()
    layers = world.rules[FAMILY]["layers"]
    types = QWEN_27B["layer_types"]
    shape = {**QWEN_27B, "num_hidden_layers": layers, "layer_types": types[:layers]}
    yield from long_prefixes(world, loaded(shape, world.seed, world.device))


def loaded(shape: dict[str, object], seed: int, device: str) -> Loaded:
    """Return a configuration and random weights of its shape: bf16 on a GPU."""
    torch.manual_seed(seed)
    config = config_from_json(shape)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    parts = target_parts(config, dtype)
    block = empty_block(parts, device)
    randomise(FlatWeights.over(parts, block))
    return config, view_target(config, dtype, block)


@dataclass
class LongTally:
    """What the cycles over all prefixes showed."""

    cycles: int = 0
    tokens: int = 0
    states: int = 0
    accepted: int = 0
    flushes: int = 0
    schedules: int = 0
    controls: list[bool] = field(default_factory=list)


def long_prefixes(world: World, weights: Loaded) -> Iterator[Check]:
    """Yield cycles against plain decoding: tokens, and every bit of the state."""
    rules, tally = world.rules[FAMILY], LongTally()
    context = -(-(max(rules["prefix_lengths"]) + ROOM) // PAGE) * PAGE
    ring = Ring(Path("random"), 1, context, 256, True, 0, world.device, weights)
    ring.wants_digest = False  # states are compared on the device, bit for bit
    for length in rules["prefix_lengths"]:
        _prefix(world, ring, length, tally)
    tally.controls.append(_sees_a_lost_replay(world, ring))
    control = all(tally.controls)
    detail = {
        "layers": rules["layers"],
        "prefix_lengths": rules["prefix_lengths"],
        "accepted_drafts": tally.accepted,
    }
    count = tally.cycles
    yield Check(FAMILY, "greedy tokens over long prefixes", count, tally.tokens, control, detail)
    yield Check(FAMILY, "state bits over long prefixes", count, tally.states, control)
    yield Check(FAMILY, "flush steps over long prefixes", tally.schedules, tally.flushes, control)


def snapshot(ring: Ring) -> Snapshot:
    """Return a copy of what a digest covers: active states, keys and values in order."""
    state = ring.arenas.verifier
    length, active = ring.rows[0].length, int(state["words"][0, ACTIVE_SET])
    pages = state["page_table"][0, : -(-length // PAGE)].long()
    flat = state["kv"][:, pages].permute(0, 2, 3, 1, 4, 5).flatten(3, 4)
    return {
        "recurrent": state["recurrent"][0, active].clone(),
        "conv": state["conv"][0, active].clone(),
        "kv": flat[:, :, :, :length].clone(),
    }


def same_bits(one: Snapshot, other: Snapshot) -> bool:
    """Say whether two snapshots agree in every bit."""
    pairs = ((one[name], other[name]) for name in one)
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)


def _prompt(world: World, ring: Ring, length: int) -> list[int]:
    rng = random.Random(world.seed + length)
    return [rng.randrange(ring.model.vocab_size) for _ in range(length)]


def _plain(ring: Ring, prompt: list[int], count: int, wanted: set[int]) -> dict[int, Snapshot]:
    """Decode plainly; return the snapshots at the wanted lengths, the tokens in ring.rows[0]."""
    ring.drafter.draft = root_only
    row, found = ring.start(0, prompt), {}
    while len(row.emitted) < count:
        ring.cycle(0)
        if row.length in wanted:
            found[row.length] = snapshot(ring)
    return found


def _prefix(world: World, ring: Ring, length: int, tally: LongTally) -> None:
    """Run the schedules of one prefix and plain decoding behind the same prompt."""
    rules, prompt = world.rules[FAMILY], _prompt(world, ring, length)
    _plain(ring, prompt, MOST_A_CYCLE * rules["cycles"] + 2, set())
    truth = ring.rows[0].emitted
    ring.release(0)
    plain: dict[int, Snapshot] = {}
    for _ in rules["schedules"]:
        tree, row_tokens = _cycles(world, ring, prompt, truth, tally)
        if not plain:
            plain = _plain(ring, prompt, len(row_tokens), {*tree})
            ring.release(0)
        lengths = sorted(tree)
        held = [n in plain and same_bits(tree[n], plain[n]) for n in lengths]
        tally.states += sum(held[:-1])
        tally.flushes += held[-1] and row_tokens == truth[: len(row_tokens)]
        tally.controls.append(not same_bits(tree[lengths[0]], plain[lengths[1]]))


def _cycles(
    world: World, ring: Ring, prompt: list[int], truth: list[int], tally: LongTally
) -> tuple[dict[int, Snapshot], list[int]]:
    """Run tree cycles, a root-only one, and the flush step; return snapshots and tokens."""
    cycles = world.rules[FAMILY]["cycles"]
    row = ring.start(0, prompt)
    known = KnownDraft(ring, {0: truth}, random.Random(world.seed), PATTERNS)
    found: dict[int, Snapshot] = {}
    for cycle in range(cycles + 1):
        ring.drafter.draft = known if cycle < cycles - 1 else root_only
        result = ring.cycle(0)[0]
        found[row.length] = snapshot(ring)
        if cycle < cycles:
            tally.cycles += 1
            tally.accepted += len(result.path.nodes) - 1
            tally.tokens += row.emitted == truth[: len(row.emitted)]
    tally.schedules += 1
    tokens = list(row.emitted)
    ring.release(0)
    return found, tokens


def _sees_a_lost_replay(world: World, ring: Ring) -> bool:
    """The inverse control: without the recurrent replay a cycle's state must differ."""
    prompt = _prompt(world, ring, 300)
    plain = _plain(ring, prompt, 1, {len(prompt)})
    ring.release(0)
    run_eagerly(ring)
    row = ring.start(0, prompt)
    ring.committer.steps["recurrent_replay"] = lambda job: None
    ring.cycle(0)
    ring.committer.steps = dict(STEPS)
    found = snapshot(ring)
    return row.length in plain and not same_bits(found, plain[row.length])
