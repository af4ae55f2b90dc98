"""References to device state that are safe to send: never an address, never a handle."""

from dataclasses import dataclass

from services.contract.checks import whole
from services.contract.limits import MAX_COUNTER, MAX_SEQUENCES


@dataclass(frozen=True, slots=True)
class SlotRef:
    """Name a sequence slot and the reuse counter it had when the reference was made."""

    slot: int
    generation: int

    def __post_init__(self) -> None:
        whole(self.slot, 0, MAX_SEQUENCES - 1, "slot")
        whole(self.generation, 0, MAX_COUNTER, "generation")
