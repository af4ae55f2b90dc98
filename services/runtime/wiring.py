"""Bring the stages of a group from whatever state they are in to one wired ring."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Final

from services.contract.config import EngineConfig
from services.contract.errors import ContractError, UnavailableError
from services.runtime import ipc
from services.runtime.log import get_logger
from services.runtime.placement import StageActors
from services.runtime.seat import GatewayEnd
from services.runtime.sockets import RING

_LOG = get_logger("runtime.wiring")
_WIRE_SECONDS: Final = 120.0
_PROBE_SECONDS: Final = 20.0
_STATUS_SECONDS: Final = 2.0
# Owner of the memory, who writes, who reads: every direction that a cycle uses.
_READS: Final = (
    ("verifier", "verifier", "drafter"),
    ("verifier", "verifier", "committer"),
    ("drafter", "drafter", "verifier"),
)
# The one write into another owner's memory: the publication. Without it the committer's paths
# are read by the verifier, which publishes on order.
_WRITE: Final = ("verifier", "committer", "verifier")
_PATHS: Final = ("committer", "committer", "verifier")
_ORDERS: Final = "orders"


class NotWritableError(UnavailableError):
    """Importers read an owner's memory but cannot write it."""


def wire_stages(
    actors: StageActors,
    ring: GatewayEnd,
    config: EngineConfig,
    paths: Mapping[str, str],
    epoch: int,
    load_s: float,
    mode: str,
) -> None:
    """Load what is fresh, lend memory, listen, probe, prepare, connect.

    Raises  ContractError of the stage that could not, NotWritableError if all but the
            importer's write of `mode` works; the ring is then of no use.
    """
    orders = ring.inbox(_ORDERS) if ipc.is_read_only(mode) else ""
    actors.call("load", lambda name: (config, paths), timeout_s=load_s)
    maps = {name: _lent_to(actors, name, epoch, mode) for name in RING}
    actors.call(
        "wire",
        lambda name: (epoch, maps[name], ring.inbox(name), orders),
        timeout_s=_WIRE_SECONDS,
    )
    _probe(actors, epoch, mode)
    actors.call("prepare", timeout_s=load_s)
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


def _lent_to(actors: StageActors, importer: str, epoch: int, mode: str) -> list[bytes]:
    maps: list[bytes] = []
    for owner in RING:
        if owner != importer:
            asked = importer, epoch, mode
            maps.extend(actors.call_one(owner, "export", *asked, timeout_s=_WIRE_SECONDS))
    return maps


def _probe(actors: StageActors, epoch: int, mode: str) -> None:
    """Write and read a row of shared memory in every direction, within a time limit."""
    directions = (*_READS, _PATHS if ipc.is_read_only(mode) else _WRITE)
    numbers = count(epoch * len(directions))
    for direction in directions:
        why = _fault(actors, direction, next(numbers))
        if why and direction == _WRITE:
            raise NotWritableError("PROBE", why + "; use --runtime inproc")
        if why:
            raise UnavailableError("PROBE", why + "; use --runtime inproc")
    for owner in RING:
        actors.call_one(owner, "probe_clear", timeout_s=_PROBE_SECONDS)


def _fault(actors: StageActors, direction: tuple[str, str, str], seed: int) -> str:
    """Return why a direction does not work, or nothing."""
    owner, writer, reader = direction
    try:
        actors.call_one(writer, "probe_write", owner, seed, timeout_s=_PROBE_SECONDS)
        is_there = actors.call_one(reader, "probe_read", owner, seed, timeout_s=_PROBE_SECONDS)
    except ContractError as error:
        return f"{writer} to {reader} through {owner}'s memory: {error.message}"
    return "" if is_there else f"{reader} does not see what {writer} wrote into {owner}'s memory"
