"""Slots and pages: one owner each, all or none, old references refused."""

import random

import pytest

from services.contract.errors import ExhaustedError, IntegrityError, StaleSlotError
from services.runtime.pools import PagePool, SlotPool


def test_generation_grows_and_old_reference_is_refused() -> None:
    pool = SlotPool(2)
    first = pool.allocate("a")
    pool.free(first)
    again = pool.allocate("b")
    assert (again.slot, again.generation) == (first.slot, first.generation + 1)
    for call in (pool.check, pool.free, pool.owner):
        with pytest.raises(StaleSlotError):
            call(first)
    assert pool.owner(again) == "b"


def test_full_pools_say_so_and_change_nothing() -> None:
    slots, pages = SlotPool(1), PagePool(3)
    slots.allocate("a")
    pages.allocate(2)
    with pytest.raises(ExhaustedError, match="max_sequences"):
        slots.allocate("b")
    with pytest.raises(ExhaustedError, match="2 pages asked, 1 of 3 free"):
        pages.allocate(2)
    assert (slots.num_used, pages.num_free) == (1, 1)


def test_pages_are_freed_once() -> None:
    pool = PagePool(4)
    held = pool.allocate(2)
    free = next(page for page in range(4) if page not in held)
    for wrong in ([held[0], held[0]], [free]):
        with pytest.raises(IntegrityError):
            pool.free(wrong)
    pool.free(held)
    with pytest.raises(IntegrityError):
        pool.free(held)
    pool.check_integrity()


def test_random_use_keeps_free_and_used_a_partition(seed: int) -> None:
    rng = random.Random(seed)
    slots, pages = SlotPool(5), PagePool(40)
    live: list[tuple[object, list[int]]] = []
    seen: dict[int, int] = {}
    for _ in range(500):
        if live and (rng.random() < 0.5 or not slots.num_free):
            ref, held = live.pop(rng.randrange(len(live)))
            slots.free(ref)
            pages.free(held)
        elif pages.num_free >= 8:
            ref = slots.allocate("x")
            assert ref.generation > seen.get(ref.slot, 0)
            seen[ref.slot] = ref.generation
            live.append((ref, pages.allocate(rng.randint(0, 8))))
        slots.check_integrity()
        pages.check_integrity()
        assert slots.num_free + slots.num_used == 5
        assert pages.num_free + pages.num_used == 40
        owned = [page for _, held in live for page in held]
        assert len(set(owned)) == len(owned) == pages.num_used


def test_a_lost_page_is_noticed() -> None:
    pool = PagePool(4)
    pool.allocate(1)
    pool._used.clear()
    with pytest.raises(IntegrityError):
        pool.check_integrity()
    slots = SlotPool(2)
    slots._free.pop()
    with pytest.raises(IntegrityError):
        slots.check_integrity()
