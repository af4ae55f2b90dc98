"""Several stage groups behind the doors of one: a request goes where its prefix was served."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

from services.contract.errors import UnavailableError
from services.contract.limits import PAGE
from services.gateway.clock import CycleClock
from services.gateway.requests import GenerationRequest
from services.gateway.speculation import SpecSummary, merge

MAX_PREFIXES: Final = 1 << 16
_DIGEST_BYTES: Final = 16


class PrefixMap:
    """Remember which group served a tenant's prompt prefixes, the latest MAX_PREFIXES of them."""

    def __init__(self, max_prefixes: int = MAX_PREFIXES) -> None:
        self._max = max_prefixes
        self._groups: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._groups)

    def find(self, tenant: str, prompt_ids: Sequence[int]) -> int | None:
        """Return the group that served the longest known prefix, if one did."""
        found = None
        for key in prefix_keys(tenant, prompt_ids):
            group = self._groups.get(key)
            if group is None:
                break
            found = group
        return found

    def remember(self, tenant: str, prompt_ids: Sequence[int], group: int) -> None:
        """Note that a group serves a prompt; the oldest prefixes make room."""
        for key in prefix_keys(tenant, prompt_ids):
            self._groups[key] = group
            self._groups.move_to_end(key)
        while len(self._groups) > self._max:
            self._groups.popitem(last=False)


def prefix_keys(tenant: str, prompt_ids: Sequence[int]) -> Iterator[bytes]:
    """Yield one key a whole page of a prompt: a digest of everything up to its end."""
    total = blake2b(tenant.encode(), digest_size=_DIGEST_BYTES)
    for start in range(0, len(prompt_ids) - PAGE + 1, PAGE):
        page = prompt_ids[start : start + PAGE]
        total.update(b"".join(token.to_bytes(4, "little") for token in page))
        yield total.digest()


class Router:
    """Offer what a CycleClock offers, over one clock a group (see CycleClock).

    A group that does not serve gets nothing new. Choices of one request stay together.
    """

    def __init__(self, clocks: Sequence[CycleClock]) -> None:
        self._clocks = tuple(clocks)
        self._prefixes = PrefixMap()

    @property
    def scheduler(self) -> Router:
        """Return what tells the load of all groups."""
        return self

    @property
    def is_stuck(self) -> bool:
        """Whether every group's clock is stuck."""
        return all(clock.is_stuck for clock in self._clocks)

    @property
    def num_running(self) -> int:
        """Sequences that hold a slot."""
        return sum(clock.scheduler.num_running for clock in self._clocks)

    @property
    def num_waiting(self) -> int:
        """Sequences without a slot."""
        return sum(clock.scheduler.num_waiting for clock in self._clocks)

    @property
    def free_pages(self) -> int:
        """Key-value pages that nobody holds."""
        return sum(clock.scheduler.free_pages for clock in self._clocks)

    @property
    def speculation(self) -> SpecSummary:
        """Speculation figures of all ended sequences."""
        return merge([clock.scheduler.speculation for clock in self._clocks])

    def live_ids(self) -> list[str]:
        """Return the ids of all live requests."""
        return sorted({name for clock in self._clocks for name in clock.scheduler.live_ids()})

    def start(self) -> None:
        """Start every clock."""
        for clock in self._clocks:
            clock.start()

    def submit(self, request: GenerationRequest) -> None:
        """Queue a sequence at one group.

        Raises  UnavailableError while draining or where no group serves, and what
                `Scheduler.submit` raises.
        """
        index = self._choose(request)
        self._clocks[index].submit(request)
        self._prefixes.remember(request.drafting.tenant, request.prompt_ids, index)

    def cancel(self, request_id: str) -> bool:
        """Stop a request before its next cycle; say whether it was alive."""
        found = [clock.cancel(request_id) for clock in self._clocks]
        return any(found)

    def drain(self, timeout_s: float) -> bool:
        """Refuse new sequences, wait for the live ones; say whether all of them ended."""
        for clock in self._clocks:
            clock.refuse()
        end = time.monotonic() + timeout_s
        ended = [clock.drain(end - time.monotonic()) for clock in self._clocks]
        return all(ended)

    def stop(self) -> None:
        """End what still lives as ABORTED and stop the clocks."""
        for clock in self._clocks:
            clock.stop()

    def _choose(self, request: GenerationRequest) -> int:
        for index, clock in enumerate(self._clocks):
            if request.request_id in clock.scheduler.live_ids():
                return index
        serving = [i for i, clock in enumerate(self._clocks) if clock.scheduler.is_serving]
        if not serving:
            text = "every stage group is restarting; send again"
            raise UnavailableError("NO_GROUP", text)
        least = min(serving, key=self._load)
        known = self._prefixes.find(request.drafting.tenant, request.prompt_ids)
        if known in serving and self._load(known) - self._load(least) <= self._spread(known):
            return known
        return least

    def _load(self, index: int) -> int:
        scheduler = self._clocks[index].scheduler
        return scheduler.num_running + scheduler.num_waiting

    def _spread(self, index: int) -> int:
        """Return how much busier than the least a group may be and still get its prefixes."""
        return self._clocks[index].scheduler.num_slots
