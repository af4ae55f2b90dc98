"""What a check says: how many cases, how many held, and whether its control fired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The longest first: several run at a time.
FAMILIES = (
    "continuation",
    "shapes",
    "sampler",
    "generations",
    "faults",
    "components",
    "size27b",
    "lifecycle",
)


@dataclass
class Check:
    """One row of the result.

    Args    control: whether the inverse control, in which the same check must fail, failed.
            not_run: why nothing was run; such a row neither passes nor fails.
    """

    family: str
    name: str
    cases: int
    passed: int
    control: bool
    detail: Mapping[str, Any] = field(default_factory=dict)
    not_run: str = ""
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """Say whether the check does not stand against the system."""
        if self.not_run:
            return True
        return 0 < self.cases == self.passed and self.control


def left_out(family: str, name: str, why: str) -> Check:
    """Return the row of a check that cannot be run here."""
    return Check(family, name, 0, 0, False, not_run=why)
