"""A suffix index: where did the last tokens occur before, and what followed?"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

from services.contract.errors import InvalidField

ORDERS: Final = (8, 4, 2, 1)
MAX_MATCH: Final = 32
MAX_MATCHES: Final = 16
MAX_LINKS: Final = 64
MIN_CAPACITY: Final = 64
SEPARATOR: Final = -1
_LAST_POSITION: Final = (1 << 31) - 1


class Match(NamedTuple):
    """Say that the last `length` tokens of a context also end just before position `end`."""

    end: int
    length: int


class SuffixIndex:
    """Hold the last `capacity` tokens of a text and find earlier copies of its endings.

    For each order g one table maps a hash of g tokens to its latest end, and one ring links
    each end to the one before it: hash chains as in zlib, for four lengths at once.
    Args    capacity: tokens kept, rounded up to a power of two; the oldest are forgotten.
    Numbers update O(1) a token; look-up at most 4 x 64 links and 16 x 32 compared tokens;
            36 bytes a token of capacity, allocated once.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < MIN_CAPACITY:
            message = f"capacity {capacity}; at least {MIN_CAPACITY} tokens"
            raise InvalidField("OUT_OF_RANGE", message, "capacity")
        self.capacity = 1 << (capacity - 1).bit_length()
        self._mask = self.capacity - 1
        self._tokens = array("i", bytes(4 * self.capacity))
        self._links = [array("i", bytes(4 * self.capacity)) for _ in ORDERS]
        self._heads = [array("i", bytes(4 * self.capacity)) for _ in ORDERS]
        self._tail = array("i")
        self.num_tokens = 0

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all tables."""
        return 4 * self.capacity * (1 + 2 * len(ORDERS))

    def clear(self) -> None:
        """Forget the text."""
        for heads in self._heads:
            memoryview(heads).cast("B")[:] = bytes(4 * self.capacity)
        del self._tail[:]
        self.num_tokens = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Append `tokens` to the text."""
        if self.num_tokens + len(tokens) > _LAST_POSITION:
            self.clear()
        run = self._tail + array("i", tokens)
        view = memoryview(run)
        mask, ring = self._mask, self._tokens
        tables = tuple(zip(ORDERS, self._heads, self._links, strict=True))
        end = self.num_tokens
        for index in range(len(self._tail) + 1, len(run) + 1):
            ring[end & mask] = run[index - 1]
            end += 1
            for order, heads, links in tables:
                if index >= order:
                    bucket = crc32(view[index - order : index]) & mask
                    links[end & mask] = heads[bucket]
                    heads[bucket] = end
        self.num_tokens = end
        self._tail = run[-MAX_MATCH:]

    def context(self, extra: Sequence[int] = ()) -> array[int]:
        """Return the last tokens of the text followed by `extra`, at most 32."""
        return (self._tail + array("i", extra))[-MAX_MATCH:]

    def matches(self, context: array[int]) -> list[Match]:
        """Return where `context` ends inside the text with a token after it, latest first.

        Those of the highest order that has any: all agree in their last 8, 4, 2 or 1 tokens.
        """
        for rank, order in enumerate(ORDERS):
            if len(context) >= order:
                found = self._walk(rank, order, context)
                if found:
                    return found
        return []

    def token(self, position: int) -> int:
        """Return the token at `position`, or SEPARATOR where the text has none (any more)."""
        if self.num_tokens - self.capacity <= position < self.num_tokens:
            return self._tokens[position & self._mask]
        return SEPARATOR

    def _walk(self, rank: int, order: int, context: array[int]) -> list[Match]:
        mask, links = self._mask, self._links[rank]
        end = self._heads[rank][crc32(context[-order:]) & mask]
        oldest = max(self.num_tokens - self.capacity, 0)
        found: list[Match] = []
        for _ in range(MAX_LINKS):
            if end - order < oldest or end == 0:
                break
            if end < self.num_tokens:
                length = self._agreement(end, context, oldest)
                if length >= order:
                    found.append(Match(end, length))
                    if len(found) == MAX_MATCHES:
                        break
            end = links[end & mask]
        return found

    def _agreement(self, end: int, context: array[int], oldest: int) -> int:
        ring, mask = self._tokens, self._mask
        length, most = 0, min(len(context), end - oldest)
        while length < most and ring[(end - 1 - length) & mask] == context[-1 - length]:
            length += 1
        return length
