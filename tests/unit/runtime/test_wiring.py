"""What a wiring asks of the stages in each mode, and what it makes of a failed probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from services.contract.config import EngineConfig
from services.contract.errors import UnavailableError
from services.runtime.ipc import CPU_SHM, CPU_SHM_RO
from services.runtime.wiring import NotWritableError, wire_stages

Direction = tuple[str, str, str]
WRITE = ("verifier", "committer", "verifier")
READS = [
    ("verifier", "verifier", "drafter"),
    ("verifier", "verifier", "committer"),
    ("drafter", "drafter", "verifier"),
]
PATHS = ("committer", "committer", "verifier")


class FakeRing:
    """Name the ends of a ring."""

    is_connected = False

    def inbox(self, stage: str) -> str:
        """Return where a stage listens."""
        return f"at {stage}"

    def outbox(self, stage: str) -> str:
        """Return where a stage connects."""
        return f"after {stage}"

    def connect(self) -> None:
        """Close the ring."""
        self.is_connected = True


class FakeActors:
    """Remember the calls; break one direction of the probe, in the write or in the read."""

    def __init__(self, broken: Direction | None = None, dies: bool = False) -> None:
        self.broken, self.dies = broken, dies
        self.calls: list[str] = []
        self.wired: dict[str, tuple[Any, ...]] = {}
        self.probed: list[Direction] = []
        self._written = ("", "")

    def call(
        self,
        method: str,
        arguments: Callable[[str], tuple[Any, ...]] = lambda name: (),
        *,
        timeout_s: float,
    ) -> dict[str, Any]:
        """Take a call to every stage."""
        self.calls.append(method)
        if method == "wire":
            self.wired = {name: arguments(name) for name in ("drafter", "verifier", "committer")}
        return {}

    def call_one(self, name: str, method: str, *rest: Any, timeout_s: float) -> Any:
        """Take a call to one stage."""
        if method == "export":
            return []
        if method == "probe_write":
            self._written = (rest[0], name)
            if self.dies and self.broken and self.broken[:2] == self._written:
                raise UnavailableError("STAGE_DIED", f"{name} is restarting; wait")
        if method == "probe_read":
            self.probed.append((*self._written, name))
            return self.probed[-1] != self.broken
        return None


def wire(actors: FakeActors, mode: str) -> FakeRing:
    ring = FakeRing()
    wire_stages(actors, ring, EngineConfig(model="m"), {}, 1, 1.0, mode)
    return ring


@pytest.mark.parametrize(("mode", "last"), [(CPU_SHM, WRITE), (CPU_SHM_RO, PATHS)])
def test_stages_are_built_after_the_probe_of_every_direction(mode: str, last: Direction) -> None:
    actors = FakeActors()
    assert wire(actors, mode).is_connected
    assert actors.calls == ["load", "wire", "prepare", "connect"]
    assert actors.probed == [*READS, last]
    orders = "at orders" if mode == CPU_SHM_RO else ""
    assert {arguments[3] for arguments in actors.wired.values()} == {orders}


@pytest.mark.parametrize("dies", [False, True])
def test_an_importer_that_cannot_write_is_told_apart(dies: bool) -> None:
    actors = FakeActors(WRITE, dies)
    with pytest.raises(NotWritableError, match="committer"):
        wire(actors, CPU_SHM)
    assert "prepare" not in actors.calls
    assert wire(actors, CPU_SHM_RO).is_connected


@pytest.mark.parametrize("broken", [*READS, PATHS])
def test_where_importers_cannot_read_it_refuses_and_says_what_to_do(broken: Direction) -> None:
    with pytest.raises(UnavailableError, match="use --runtime inproc") as caught:
        wire(FakeActors(broken), CPU_SHM_RO)
    assert not isinstance(caught.value, NotWritableError)
