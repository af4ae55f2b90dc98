"""Stages as Ray actors on one GPU: the digests of one process, whoever publishes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.commands.options import EMBEDDED_MODEL
from services.contract.config import EngineConfig
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.gateway.engine import Engine, Generation
from services.gateway.requests import GenerationRequest
from services.runtime import ipc

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
CONTEXT = 1024


def generation(engine: Engine, seed: int = 7) -> Generation:
    """Generate 128 sampled tokens with a digest after every cycle."""
    return engine.generate(
        GenerationRequest(
            request_id=engine.next_request_id(),
            prompt_ids=tuple(engine.codec.encode("def fibonacci(n):\n")),
            sampling=SamplingParams(temperature=0.9, seed=seed),
            budget=Budget(128, context_length=CONTEXT),
            drafting=Drafting(),
            sink=lambda event: None,
            wants_digest=True,
        )
    )


def digests(found: Generation) -> list[bytes]:
    """Return the digest after every cycle."""
    return [delta.digest for delta in found.deltas]


def opened(runtime: str, mps: bool = False) -> Engine:
    """Return an engine of the embedded model."""
    return Engine.open(
        EngineConfig(
            model=str(EMBEDDED_MODEL),
            runtime=runtime,
            device=DEVICE,
            context_length=CONTEXT,
            max_sequences=1,
            mps=mps,
        )
    )


@pytest.fixture(scope="module")
def local() -> Iterator[Engine]:
    engine = opened("inproc")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def expected(local: Engine) -> list[bytes]:
    return digests(generation(local))


def test_another_seed_gives_other_digests(local: Engine, expected: list[bytes]) -> None:
    assert all(expected)
    assert digests(generation(local, seed=8)) != expected


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("mps", [False, True])
def test_actors_give_the_digests_of_one_process(
    monkeypatch: pytest.MonkeyPatch, expected: list[bytes], is_ordered: bool, mps: bool
) -> None:
    mode = ipc.transport_of(DEVICE)
    if is_ordered:
        mode = ipc.read_only(mode)
        monkeypatch.setattr(ipc, "transport_of", lambda device: mode)
    engine = opened("ray", mps)
    try:
        assert engine.group.stats()["mode"] == mode
        assert digests(generation(engine)) == expected
    finally:
        engine.close()
