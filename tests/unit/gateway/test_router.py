"""Where the router sends a request when there are several stage groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from services.contract.errors import UnavailableError
from services.contract.limits import PAGE
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.gateway.requests import GenerationRequest
from services.gateway.router import PrefixMap, Router, prefix_keys

SLOTS = 2


@dataclass
class Books:
    """What a scheduler tells a router."""

    is_serving: bool = True
    num_slots: int = SLOTS
    num_waiting: int = 0
    live: list[str] = field(default_factory=list)

    @property
    def num_running(self) -> int:
        return len(self.live)

    def live_ids(self) -> list[str]:
        return self.live


@dataclass
class Doors:
    """A clock that notes what it is given."""

    scheduler: Books = field(default_factory=Books)

    def submit(self, request: GenerationRequest) -> None:
        self.scheduler.live.append(request.request_id)

    def cancel(self, request_id: str) -> bool:
        return request_id in self.scheduler.live


def _router(count: int = 2) -> tuple[Router, list[Doors]]:
    doors = [Doors() for _ in range(count)]
    return Router(cast("list[Any]", doors)), doors


def _request(name: str, pages: int, first: int = 0, tenant: str = "") -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        prompt_ids=tuple(first + i for i in range(pages * PAGE + 1)),
        sampling=SamplingParams(),
        budget=Budget(4, context_length=4096),
        drafting=Drafting(tenant=tenant),
        sink=lambda event: None,
    )


def _where(doors: list[Doors], name: str) -> list[int]:
    return [index for index, door in enumerate(doors) if name in door.scheduler.live]


def test_new_prompts_go_to_the_least_loaded_group() -> None:
    router, doors = _router(3)
    for index in range(6):
        router.submit(_request(f"r{index}", pages=2, first=1000 * index))
    assert [len(door.scheduler.live) for door in doors] == [2, 2, 2]


def test_a_known_prefix_goes_where_it_was_served() -> None:
    router, doors = _router()
    router.submit(_request("first", pages=2))
    doors[0].scheduler.live.clear()
    doors[0].scheduler.live += ["other"]
    router.submit(_request("longer", pages=3))
    router.submit(_request("unknown", pages=3, first=7))
    assert (_where(doors, "longer"), _where(doors, "unknown")) == ([0], [1])


def test_a_prefix_of_another_tenant_is_not_known() -> None:
    router, doors = _router()
    router.submit(_request("mine", pages=2, tenant="a"))
    router.submit(_request("theirs", pages=2, tenant="b"))
    assert (_where(doors, "mine"), _where(doors, "theirs")) == ([0], [1])


def test_a_group_that_is_too_busy_or_down_loses_its_prefixes() -> None:
    router, doors = _router()
    router.submit(_request("first", pages=2))
    doors[0].scheduler.live += ["x"] * SLOTS
    router.submit(_request("busy", pages=2))
    assert _where(doors, "busy") == [1]
    doors[0].scheduler.live.clear()
    doors[1].scheduler.is_serving = False
    router.submit(_request("down", pages=2))
    assert _where(doors, "down") == [0]


def test_choices_of_one_request_stay_together() -> None:
    router, doors = _router()
    for _ in range(3):
        router.submit(_request("same", pages=0))
    assert [len(door.scheduler.live) for door in doors] == [3, 0]
    assert router.cancel("same") and not router.cancel("unknown")


def test_no_group_that_serves_is_said() -> None:
    router, doors = _router()
    for door in doors:
        door.scheduler.is_serving = False
    with pytest.raises(UnavailableError, match="every stage group"):
        router.submit(_request("r", pages=1))


def test_the_prefix_map_is_bounded_and_forgets_the_oldest() -> None:
    known = PrefixMap(max_prefixes=4)
    for index in range(5):
        known.remember("", range(1000 * index, 1000 * index + 2 * PAGE), index)
    assert len(known) == 4
    assert known.find("", range(4 * PAGE)) is None
    assert known.find("", range(4000, 4000 + 3 * PAGE)) == 4


def test_keys_cover_whole_pages_and_everything_before_them() -> None:
    ids = list(range(3 * PAGE - 1))
    keys = list(prefix_keys("", ids))
    assert len(keys) == 2
    changed = list(prefix_keys("", [99, *ids[1:]]))
    assert not set(keys) & set(changed)
