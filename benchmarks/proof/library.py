"""An independent engine on the same checkpoint: transformers in float64, the paper's envelope."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from benchmarks.proof.check import Check, left_out
from benchmarks.proof.world import World, run_eagerly
from services.committer.publish import STEPS
from services.contract.limits import PAGE
from services.kernels.state_words import ACTIVE_SET
from tests.ring import Ring

FAMILY, NAME = "continuation", "envelope of transformers in float64"
STATES = ("gdn", "conv", "kv_new", "kv_old")


@dataclass
class Worst:
    """The largest error of each surface, over all cycles."""

    errors: dict[str, float] = field(default_factory=dict)
    cycles: int = 0
    held: int = 0
    greedy: int = 0

    def add(self, errors: dict[str, float], bounds: dict[str, float], same_token: bool) -> None:
        """Count one cycle."""
        self.cycles += 1
        self.held += all(errors[name] <= bounds[name] for name in errors)
        self.greedy += same_token
        for name, value in errors.items():
            self.errors[name] = max(value, self.errors.get(name, 0.0))


def envelope(world: World) -> Iterator[Check]:
    """Yield the comparison of every surface with the library's after each cycle."""
    try:
        from tests.numerics.library_model import LibraryModel
    except ImportError:
        yield left_out(FAMILY, NAME, "not run: transformers is not installed")
        return
    if world.device != "cpu" or world.short:
        yield left_out(FAMILY, NAME, "not run: float64 comparison is made on the CPU")
        return
    rules, worst, control = world.rules[FAMILY], Worst(), True
    library = LibraryModel(world.model)
    library.model = library.model.double()
    for index in rules["library_prefixes"]:
        control &= _prefix(world, library, index, worst)
    bounds = _bounds(rules)
    ratios = {name: value * rules["limit"] / bounds[name] for name, value in worst.errors.items()}
    detail = {"max_error": worst.errors, "max_ratio": ratios, "limit": rules["limit"]}
    yield Check(FAMILY, NAME, worst.cycles, worst.held, control, detail)
    yield Check(FAMILY, "greedy tokens of transformers", worst.cycles, worst.greedy, control)


def _bounds(rules: dict) -> dict[str, float]:
    states = dict.fromkeys(STATES, rules["limit"] * rules["state_floor"])
    return {**states, "kl": rules["limit"] * rules["kl_floor"]}


def _prefix(world: World, library: object, index: int, worst: Worst) -> bool:
    """Compare one prefix; return whether a cycle without replay broke the bound."""
    from benchmarks.proof.continuation import harvest, replayed

    rules, prompt = world.rules[FAMILY], world.prefix(index)
    trees = harvest(world, prompt, rules["cycles"] - 1)
    ring = world.ring(len(prompt))
    row = ring.start(0, prompt)
    replayed(trees, ring)
    follower = Follower(library, prompt[:-1])
    for _ in range(rules["cycles"]):
        before, root = row.length, row.root
        result = ring.cycle(0)[0]
        logits = ring.arenas.verifier["logits"][0, result.path.nodes[-1]].double().cpu()
        follower.feed([root, *result.path.emitted_ids[:-1]])
        errors = surface_errors(ring, follower, before)
        errors["kl"] = divergence(follower.logits, logits)
        worst.add(errors, _bounds(rules), int(follower.logits.argmax()) == row.root)
    run_eagerly(ring)
    before, root = row.length, row.root
    ring.committer.steps["recurrent_replay"] = lambda job: None
    result = ring.cycle(0)[0]
    ring.committer.steps = dict(STEPS)
    follower.feed([root, *result.path.emitted_ids[:-1]])
    return surface_errors(ring, follower, before)["gdn"] > _bounds(rules)["gdn"]


class Follower:
    """The library's model, fed what our sequence materialises."""

    def __init__(self, library: object, token_ids: list[int]) -> None:
        self.library = library
        library.run(token_ids)
        self.logits = torch.empty(0)

    @torch.no_grad()
    def feed(self, token_ids: list[int]) -> None:
        """Decode tokens one by one; keep the logits after the last."""
        for token in token_ids:
            out = self.library.model(
                torch.tensor([[token]]), past_key_values=self.library.cache, use_cache=True
            )
            self.library.cache = out.past_key_values
            self.logits = out.logits[0, -1].double()


def surface_errors(ring: Ring, follower: Follower, before: int) -> dict[str, float]:
    """Return the relative L2 error of each surface; keys from `before` on are new."""
    state, library = ring.arenas.verifier, follower.library
    active = int(state["words"][0, ACTIVE_SET])
    layers = range(ring.model.num_attention_layers)
    ours = torch.stack([keys_values(ring, layer) for layer in layers])
    theirs = torch.stack([library.keys_values(layer) for layer in layers])
    return {
        "gdn": relative(state["recurrent"][0, active], library.recurrent()),
        "conv": relative(state["conv"][0, active], library.conv()),
        "kv_new": relative(ours[:, :, before:], theirs[:, :, before:]),
        "kv_old": relative(ours[:, :, :before], theirs[:, :, :before]),
    }


def keys_values(ring: Ring, layer: int) -> torch.Tensor:
    """Return keys and values [2, n, Hkv, D] of slot 0 in logical order."""
    state, length = ring.arenas.verifier, ring.rows[0].length
    pages = state["page_table"][0, : -(-length // PAGE)].long()
    flat = state["kv"][layer][pages].permute(1, 0, 3, 2, 4).flatten(1, 2)
    return flat[:, :length]


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return |ours - theirs| / |theirs| in the l2 norm."""
    wanted = theirs.double()
    return float((ours.double().cpu() - wanted).norm() / wanted.norm())


def divergence(theirs: torch.Tensor, ours: torch.Tensor) -> float:
    """Return the KL divergence of our next-token distribution from theirs, in nats."""
    p, q = theirs.log_softmax(-1), ours.log_softmax(-1)
    return float((p.exp() * (p - q)).sum())
