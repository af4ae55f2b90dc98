"""Bring the stages of a group from whatever state they are in to one wired ring."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Final

from services.contract.config import EngineConfig
from services.contract.errors import ContractError, UnavailableError
from services.runtime.log import get_logger
from services.runtime.placement import StageActors
from services.runtime.seat import GatewayEnd
from services.runtime.sockets import RING

_LOG = get_logger("runtime.wiring")
_WIRE_SECONDS: Final = 120.0
_PROBE_SECONDS: Final = 20.0
_STATUS_SECONDS: Final = 2.0
# Owner of the memory, who writes, who reads: every direction that a cycle uses.
_DIRECTIONS: Final = (
    ("verifier", "verifier", "drafter"),
    ("verifier", "verifier", "committer"),
    ("verifier", "committer", "verifier"),
    ("drafter", "drafter", "verifier"),
)


def wire_stages(
    actors: StageActors,
    ring: GatewayEnd,
    config: EngineConfig,
    paths: Mapping[str, str],
    epoch: int,
    load_s: float,
) -> None:
    """Load what is fresh, lend memory, listen, probe, connect.

    Raises  ContractError of the stage that could not; the ring is then of no use.
    """
    actors.call("load", lambda name: (config, paths), timeout_s=load_s)
    maps = {name: _lent_to(actors, name, epoch) for name in RING}
    actors.call("wire", lambda name: (epoch, maps[name], ring.inbox(name)), timeout_s=_WIRE_SECONDS)
    _probe(actors, epoch)
    actors.call("connect", lambda name: (ring.outbox(name),), timeout_s=_WIRE_SECONDS)
    ring.connect()


def end_hung(actors: StageActors) -> None:
    """End the process of every stage that took a message and gave no answer."""
    for name in RING:
        try:
            status = actors.call_one(name, "status", timeout_s=_STATUS_SECONDS)
        except UnavailableError as error:
            if error.reason == "STAGE_HUNG":
                actors.kill(name)
            continue
        if status["received"] != status["answered"]:
            _LOG.warning("stage hangs", stage=name)
            actors.kill(name)


def _lent_to(actors: StageActors, importer: str, epoch: int) -> list[bytes]:
    maps: list[bytes] = []
    for owner in RING:
        if owner != importer:
            call = actors.call_one(owner, "export", importer, epoch, timeout_s=_WIRE_SECONDS)
            maps.extend(call)
    return maps


def _probe(actors: StageActors, epoch: int) -> None:
    """Write and read a row of shared memory in every direction, within a time limit."""
    numbers = count(epoch * len(_DIRECTIONS))
    for owner, writer, reader in _DIRECTIONS:
        seed = next(numbers)
        limit = {"timeout_s": _PROBE_SECONDS}
        try:
            actors.call_one(writer, "probe_write", owner, seed, **limit)
            is_there = actors.call_one(reader, "probe_read", owner, seed, **limit)
        except ContractError as error:
            text = f"{writer} to {reader} through {owner}'s memory: {error.message}"
            raise UnavailableError("PROBE", text + "; use --runtime inproc") from error
        if not is_there:
            text = f"{reader} does not see what {writer} wrote into {owner}'s memory"
            raise UnavailableError("PROBE", text + "; use --runtime inproc")
    for owner in ("verifier", "drafter"):
        actors.call_one(owner, "probe_clear", timeout_s=_PROBE_SECONDS)
