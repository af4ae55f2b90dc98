"""What may follow a path, by earlier copies of its ending in this text and in older ones."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from services.drafter.suffix import SEPARATOR, SuffixIndex

MAX_TENANTS: Final = 16
TENANT_CAPACITY: Final = 1 << 16
MAX_TEXT_CAPACITY: Final = 1 << 17
MAX_KEPT_PROMPT: Final = 256
MAX_BACKLOG: Final = 1 << 15
BACKLOG_STEP: Final = 64


class Place(NamedTuple):
    """A position of a text before which a path's last `length` tokens also stand."""

    origin: SuffixIndex
    end: int
    length: int


class Proposal(NamedTuple):
    """One token that followed: `copies` of `total` places, the best agreeing in `length` tokens."""

    token: int
    copies: int
    total: int
    length: int
    places: list[Place]


def proposals(places: Sequence[Place]) -> list[Proposal]:
    """Return what follows the places: the most frequent first, then longest, then latest."""
    groups: dict[int, list[Place]] = {}
    longest: dict[int, int] = {}
    for origin, end, length in places:
        token = origin.token(end)
        if token == SEPARATOR:
            continue
        group = groups.setdefault(token, [])
        group.append(Place(origin, end + 1, length + 1))
        if length > longest.get(token, 0):
            longest[token] = length
    total = sum(map(len, groups.values()))
    found = [Proposal(t, len(g), total, longest[t], g) for t, g in groups.items()]
    if len(found) > 1:
        found.sort(key=lambda proposal: (-proposal.copies, -proposal.length))
    return found


class TenantText:
    """Tokens of one tenant's finished requests, and those still to be taken in."""

    def __init__(self, capacity: int) -> None:
        self.index = SuffixIndex(capacity)
        self._backlog: deque[int] = deque(maxlen=MAX_BACKLOG)

    @property
    def num_queued(self) -> int:
        """Return how many tokens wait to be indexed."""
        return len(self._backlog)

    def add(self, tokens: Sequence[int]) -> None:
        """Queue one finished request; the oldest of a full backlog are dropped."""
        self._backlog.append(SEPARATOR)
        self._backlog.extend(tokens)

    def take_in(self, count: int) -> None:
        """Index up to `count` queued tokens."""
        count = min(count, len(self._backlog))
        self.index.extend([self._backlog.popleft() for _ in range(count)])


class TenantTexts:
    """Finished requests by tenant; no tenant's look-up touches another's text.

    Numbers at most 16 tenants of 65,536 tokens each: 36 MiB; the least recently used goes.
    """

    def __init__(self, capacity: int = TENANT_CAPACITY, max_tenants: int = MAX_TENANTS) -> None:
        self._capacity = capacity
        self._max_tenants = max_tenants
        self._texts: OrderedDict[str, TenantText] = OrderedDict()

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all tables."""
        return sum(text.index.size_bytes for text in self._texts.values())

    def find(self, tenant: str) -> SuffixIndex | None:
        """Return the index of a tenant that has one, and mark it used."""
        if tenant not in self._texts:
            return None
        self._texts.move_to_end(tenant)
        return self._texts[tenant].index

    def add(self, tenant: str, tokens: Sequence[int]) -> None:
        """Queue a finished request's tokens for its tenant."""
        if tenant not in self._texts:
            while len(self._texts) >= self._max_tenants:
                self._texts.popitem(last=False)
            self._texts[tenant] = TenantText(self._capacity)
        self._texts.move_to_end(tenant)
        self._texts[tenant].add(tokens)

    def take_in(self, count: int = BACKLOG_STEP) -> None:
        """Index up to `count` queued tokens of the first tenant that has any."""
        text = next((text for text in self._texts.values() if text.num_queued), None)
        if text is not None:
            text.take_in(count)


class RequestText:
    """The tokens of one live request, and look-ups in them and in its tenant's texts."""

    def __init__(self, capacity: int) -> None:
        self._index = SuffixIndex(min(capacity, MAX_TEXT_CAPACITY))
        self._tenants: TenantTexts | None = None
        self._tenant = ""
        self._kept: deque[int] = deque(maxlen=MAX_KEPT_PROMPT)
        self._emitted: list[int] = []
        self._found: dict[tuple[int, ...], list[Place]] = {}

    def start(self, tenant: str, tenants: TenantTexts | None) -> None:
        """Forget the previous request; look up in `tenants` too, where given."""
        self._index.clear()
        self._kept.clear()
        self._emitted.clear()
        self._found.clear()
        self._tenant, self._tenants = tenant, tenants

    def add_prompt(self, tokens: Sequence[int]) -> None:
        """Append prompt tokens."""
        self._index.extend(tokens)
        self._kept.extend(tokens)
        self._found.clear()

    def add_emitted(self, tokens: Sequence[int]) -> None:
        """Append emitted tokens."""
        self._index.extend(tokens)
        self._emitted.extend(tokens)
        self._found.clear()

    def finished(self) -> list[int]:
        """Return what the tenant's index keeps: the prompt's end and all emitted tokens."""
        return [*self._kept, *self._emitted]

    def look_up(self, path: Sequence[int] = ()) -> list[Place]:
        """Return where the text followed by `path` was seen before, in the better index.

        The request's own text wins unless the tenant's older texts agree in more tokens. Until
        tokens are added, the same question has the same answer.
        """
        key = tuple(path)
        if key not in self._found:
            self._found[key] = self._look_up(key)
        return self._found[key]

    def _look_up(self, path: tuple[int, ...]) -> list[Place]:
        context = self._index.context(path)
        own = _places(self._index, context)
        older = self._tenants.find(self._tenant) if self._tenants is not None else None
        if older is None:
            return own
        other = _places(older, context)
        return other if _longest(other) > _longest(own) else own


def _places(index: SuffixIndex, context: array[int]) -> list[Place]:
    return [Place(index, end, length) for end, length in index.matches(context)]


def _longest(places: Sequence[Place]) -> int:
    return max((place.length for place in places), default=0)
