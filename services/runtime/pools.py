"""Host-side books of sequence slots and key-value pages."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.contract.errors import ExhaustedError, IntegrityError, StaleSlotError
from services.contract.span import SlotRef


@dataclass(slots=True)
class SlotPool:
    """Sequence slots with a reuse counter each.

    A slot has at most one owner; its generation grows with every allocation,
    so a reference of an earlier owner is refused.
    """

    num_slots: int
    _free: list[int] = field(init=False)
    _generations: list[int] = field(init=False)
    _owners: dict[int, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._free = list(range(self.num_slots - 1, -1, -1))
        self._generations = [0] * self.num_slots

    @property
    def num_free(self) -> int:
        """Return how many slots have no owner."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Return how many slots have an owner."""
        return len(self._owners)

    def allocate(self, owner: str) -> SlotRef:
        """Give a free slot to `owner` under a new generation.

        Raises  ExhaustedError when every slot is taken.
        """
        if not self._free:
            message = f"all {self.num_slots} sequence slots are taken; retry or raise max_sequences"
            raise ExhaustedError("NO_SLOT", message)
        slot = self._free.pop()
        self._generations[slot] += 1
        self._owners[slot] = owner
        return SlotRef(slot, self._generations[slot])

    def check(self, ref: SlotRef) -> None:
        """Raise StaleSlotError unless `ref` names the slot's present owner."""
        if ref.slot not in self._owners or self._generations[ref.slot] != ref.generation:
            message = f"slot {ref.slot} generation {ref.generation} is no longer owned; admit again"
            raise StaleSlotError("STALE_SLOT", message, "generation")

    def owner(self, ref: SlotRef) -> str:
        """Return the owner of a slot."""
        self.check(ref)
        return self._owners[ref.slot]

    def free(self, ref: SlotRef) -> None:
        """Take a slot back from its present owner."""
        self.check(ref)
        del self._owners[ref.slot]
        self._free.append(ref.slot)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless free and used slots are a partition of all slots."""
        listed = sorted([*self._free, *self._owners])
        if listed != list(range(self.num_slots)):
            message = f"{self.num_free} free + {self.num_used} used of {self.num_slots} slots"
            raise IntegrityError("SLOT_POOL", message + "; restart the stage group")


@dataclass(slots=True)
class PagePool:
    """Key-value pages; each belongs to one owner or is free."""

    num_pages: int
    _free: list[int] = field(init=False)
    _used: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._free = list(range(self.num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Return how many pages are free."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Return how many pages are in use."""
        return len(self._used)

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages, all or none.

        Raises  ExhaustedError when fewer are free.
        """
        if count > len(self._free):
            message = f"{count} pages asked, {len(self._free)} of {self.num_pages} free"
            raise ExhaustedError("NO_PAGE", message + "; retry or raise num_pages")
        pages = [self._free.pop() for _ in range(count)]
        self._used.update(pages)
        return pages

    def free(self, pages: list[int]) -> None:
        """Give pages back, all or none.

        Raises  IntegrityError when one of them is not in use.
        """
        if len(set(pages)) != len(pages) or not self._used.issuperset(pages):
            raise IntegrityError("PAGE_POOL", "a page was freed twice; restart the stage group")
        self._used.difference_update(pages)
        self._free.extend(pages)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless free and used pages are a partition of all pages."""
        if sorted([*self._free, *self._used]) != list(range(self.num_pages)):
            message = f"{self.num_free} free + {self.num_used} used of {self.num_pages} pages"
            raise IntegrityError("PAGE_POOL", message + "; restart the stage group")
