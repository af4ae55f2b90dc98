"""`--plant NAME`: break the system in one named way, and let the checks of that part run."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.proof.check import Check
from benchmarks.proof.world import World
from services.contract.errors import InvalidField


@dataclass(frozen=True)
class Planted:
    """The check that a planted fault must fail, and what saw it."""

    name: str
    check: Check
    seen_by: list[str]


def plant_names() -> tuple[str, ...]:
    """Return every fault that can be planted."""
    from benchmarks.proof.sampler_faults import SAMPLER_FAULTS
    from tests.faults.planted import FAULTS

    return (*(fault.name for fault in FAULTS), *SAMPLER_FAULTS)


def run_planted(world: World, name: str) -> Planted:
    """Run the check of the part that the fault breaks; a sound system passes it.

    Raises  InvalidField for a name that is not in the tables.
    """
    from benchmarks.proof.faults import Cases
    from tests.faults.planted import FAULTS

    if name not in plant_names():
        text = f"{name!r} is no planted fault; known are {', '.join(plant_names())}"
        raise InvalidField("UNKNOWN_PLANT", text, "plant")
    known = {fault.name: fault for fault in FAULTS}
    if name not in known:
        from benchmarks.proof.sampler import planted_rows

        cases, passed, seen_by = planted_rows(world, name)
        text = "rows drawn from their own distribution"
        return Planted(name, Check("sampler", text, cases, passed, True), seen_by)
    seen = Cases(world).plant(known[name], 0)
    held = int(not seen.signals)
    check = Check("faults", "state and root after the cycle are plain", 1, held, True)
    return Planted(name, check, seen.signals)
