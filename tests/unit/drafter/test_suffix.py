"""The suffix index finds what a search through the whole text finds, in bounded room."""

import random
import statistics
import time

import pytest

from services.contract.errors import InvalidField
from services.drafter.suffix import MAX_MATCH, MAX_MATCHES, ORDERS, Match, SuffixIndex


def search(text: list[int], context: list[int], capacity: int) -> list[Match]:
    """Return the matches by comparing every position of the kept text."""
    oldest = max(len(text) - capacity, 0)

    def agreement(end: int) -> int:
        length = 0
        while length < min(len(context), end - oldest):
            if text[end - 1 - length] != context[-1 - length]:
                break
            length += 1
        return length

    ends = range(len(text) - 1, oldest, -1)
    for order in ORDERS:
        if len(context) >= order:
            found = [Match(end, agreement(end)) for end in ends if agreement(end) >= order]
            if found:
                return found[:MAX_MATCHES]
    return []


@pytest.mark.parametrize("seed", range(12))
def test_matches_equal_a_search_of_the_text(seed: int) -> None:
    rng = random.Random(seed)
    index, text = SuffixIndex(64), []
    for _ in range(60):
        run = [rng.randrange(6) for _ in range(rng.randint(1, 7))]
        if text and rng.random() < 0.5:
            start = rng.randrange(len(text))
            run = text[start : start + rng.randint(1, 12)]
        text += run
        index.extend(run)
        extra = [rng.randrange(6) for _ in range(rng.randrange(3))]
        context = [*text, *extra][-MAX_MATCH:]
        assert index.matches(index.context(extra)) == search(text, context, index.capacity)


def test_search_notices_a_wrong_match() -> None:
    index = SuffixIndex(64)
    index.extend([1, 2, 3, 1, 2, 9, 1, 2])
    found = index.matches(index.context())
    assert found == search([1, 2, 3, 1, 2, 9, 1, 2], [1, 2, 3, 1, 2, 9, 1, 2], 64)
    assert found != search([1, 2, 3, 1, 7, 9, 1, 2], [1, 2, 3, 1, 7, 9, 1, 2], 64)


def test_the_longest_agreement_is_found_far_back() -> None:
    rng = random.Random(3)
    text = [rng.randrange(50) for _ in range(3000)]
    index = SuffixIndex(4096)
    index.extend([*text, *text[500:520]])
    best = index.matches(index.context())[0]
    assert (best.end, best.length) == (520, 20)
    assert [index.token(best.end + i) for i in range(5)] == text[520:525]


def test_tokens_are_forgotten_at_the_capacity() -> None:
    index = SuffixIndex(64)
    index.extend([7, 8, 9])
    index.extend(list(range(100, 164)))
    assert index.matches(index.context([7, 8])) == []
    assert index.token(0) == -1
    assert index.token(index.num_tokens - 64) == 100


def test_memory_does_not_grow() -> None:
    index = SuffixIndex(1024)
    size = index.size_bytes
    for start in range(0, 20_000, 100):
        index.extend(range(start, start + 100))
    assert index.size_bytes == size <= 40 * 1024
    assert len(index._tokens) == 1024
    assert len(index.context()) == MAX_MATCH


def test_clear_forgets_everything() -> None:
    index = SuffixIndex(64)
    index.extend([1, 2, 3, 1, 2])
    index.clear()
    index.extend([1, 2])
    assert index.matches(index.context()) == []


def test_a_small_capacity_is_refused() -> None:
    with pytest.raises(InvalidField):
        SuffixIndex(8)


def test_one_cycle_costs_little_at_64k_tokens() -> None:
    rng = random.Random(9)
    words = [[rng.randrange(8000) for _ in range(rng.randint(2, 9))] for _ in range(2000)]
    text = [token for _ in range(14_000) for token in rng.choice(words)][:65_536]
    index = SuffixIndex(65_536)
    index.extend(text)
    spent = []
    for start in range(0, 1800, 6):
        begin = time.thread_time()
        index.extend(text[start : start + 6])
        for extra in ([], [text[start + 6]], text[start + 6 : start + 11]):
            index.matches(index.context(extra))
        spent.append(time.thread_time() - begin)
    print(f"update and three look-ups: {statistics.median(spent) * 1e6:.0f} us")
    # 1% of a 10 ms cycle.
    assert statistics.median(spent) <= 100e-6
