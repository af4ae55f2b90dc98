"""The self-test at start runs in every stage group and stops a server whose tree is not plain."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from services.commands.banner import print_self_test
from services.contract.config import EngineConfig
from services.contract.errors import UnavailableError
from services.gateway.engine import Engine
from services.gateway.local_group import build_local_group
from tests.service.small import CONTEXT


@pytest.fixture(scope="module")
def engine(byte_model: Path) -> Iterator[Engine]:
    """An engine of two groups in this process."""
    config = EngineConfig(str(byte_model), threads=1, context_length=CONTEXT, max_sequences=1)
    two = Engine(config, build_local_group(config), [build_local_group(config)])
    yield two
    two.close()


def _differing(real: Any, shapes: set[str]) -> Any:
    """Return a `send` whose sequences of these shapes are drawn hot instead of greedy."""

    def send(message: Any) -> Any:
        if message.WhichOneof("body") == "admit" and message.admit.drafting.shape in shapes:
            message.admit.sampling.temperature = 50.0
        return real(message)

    return send


def test_every_group_is_tested(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    for index, group in enumerate(engine.groups):

        def send(message: Any, real: Any = group.send, index: int = index) -> Any:
            seen.append(index)
            return real(message)

        monkeypatch.setattr(group, "send", send)
    said = StringIO()
    print_self_test(Console(file=said), engine)
    assert set(seen) == {0, 1} and "in 2 groups" in said.getvalue()


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("shapes", [{"hydra27"}, {"root"}, {"root", "hydra27"}])
def test_a_group_that_draws_otherwise_stops_the_start(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, group: int, shapes: set[str]
) -> None:
    broken = engine.groups[group]
    monkeypatch.setattr(broken, "send", _differing(broken.send, shapes))
    with pytest.raises(UnavailableError) as caught:
        print_self_test(Console(file=StringIO()), engine)
    assert caught.value.reason == "SELF_TEST"
