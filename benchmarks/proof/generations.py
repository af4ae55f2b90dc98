"""Seeded texts are the same plain, as a chain and as a tree."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.proof.check import Check
from benchmarks.proof.world import World
from services.contract.config import EngineConfig
from services.contract.sampling import Drafting
from services.gateway.engine import Engine
from services.gateway.requests import Event, GenerationRequest

RULES, FAMILY, NAME = "sampler", "generations", "seeded generations"
ARMS = {"plain": "root", "chain": "chain-5", "tree": "hydra27"}


def run(world: World) -> Iterator[Check]:
    """Compare seeded texts between plain, chain and tree; the control changes the seed."""
    rules = world.rules[RULES]
    config = EngineConfig(
        str(world.model),
        device=world.device,
        threads=1,
        context_length=1024,
        max_sequences=4,
        prefill_grid=64,
    )
    engine = Engine.open(config)
    try:
        texts = {arm: _texts(engine, world, shape, 0) for arm, shape in ARMS.items()}
        other = _texts(engine, world, "root", 1)
    finally:
        engine.close()
    pairs = list(zip(*texts.values(), strict=True))
    same = sum(len(set(pair)) == 1 for pair in pairs)
    moved = sum(a != b for a, b in zip(texts["plain"], other, strict=False))
    detail = {"arms": list(ARMS), "tokens": rules["generation_tokens"]}
    yield Check(FAMILY, NAME, len(pairs), same, moved > 0, detail)


def _texts(engine: Engine, world: World, shape: str, turn: int) -> list[tuple[int, ...]]:
    """Return the ids of every generation of one arm; the turn moves every seed."""
    rules = world.rules[RULES]
    count = rules["generations"] if turn == 0 else 40
    text = world.texts[0]
    requests = []
    for index in range(count):
        start = index * 5 % (len(text) - 64)
        prompt = tuple(text[start : start + 16 + index % 40])
        values = {
            **rules["sampling"],
            "temperature": 0.9,
            "min_p": 0.02,
            "seed": world.seed + index + 5000 * turn,
        }
        requests.append(
            GenerationRequest(
                request_id=engine.next_request_id(),
                prompt_ids=prompt,
                sampling=engine.defaults.resolve_sampling(values),
                budget=engine.defaults.resolve_budget(len(prompt), rules["generation_tokens"]),
                drafting=Drafting(shape=shape, suffix=shape == "hydra27", tenant=shape),
                sink=_ignore,
            )
        )
    found = []
    for start in range(0, count, 4):
        for generation in engine.generate_all(requests[start : start + 4]):
            found.append(generation.finished.token_ids)
    return found


def _ignore(event: Event) -> None:
    del event
