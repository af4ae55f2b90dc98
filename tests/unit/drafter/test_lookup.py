"""Look-ups rank continuations by frequency, and never cross tenants."""

import random

from services.drafter.lookup import (
    MAX_BACKLOG,
    MAX_KEPT_PROMPT,
    RequestText,
    TenantTexts,
    proposals,
)

CANARY = [901, 902, 903, 904, 905, 906]


def drain(tenants: TenantTexts) -> None:
    """Index every queued token."""
    for _ in range(MAX_BACKLOG // 1024 + 1):
        tenants.take_in(1024)


def followed(text: RequestText, path: list[int], length: int) -> list[int]:
    """Return the most frequent continuation of the text and `path`."""
    places, tokens = text.look_up(path), []
    while len(tokens) < length:
        found = proposals(places)
        if not found:
            break
        tokens.append(found[0].token)
        places = found[0].places
    return tokens


def test_the_most_frequent_continuation_comes_first() -> None:
    text = RequestText(256)
    text.start("a", None)
    text.add_prompt([5, 6, 1, 3, 5, 6, 2, 4, 5, 6, 1, 7, 5, 6])
    found = proposals(text.look_up())
    assert [(p.token, p.copies, p.total) for p in found] == [(1, 2, 3), (2, 1, 3)]


def test_a_longer_agreement_breaks_the_tie() -> None:
    text = RequestText(256)
    text.start("a", None)
    text.add_prompt([9, 5, 6, 1, 8, 5, 6, 2, 9, 5, 6])
    assert [p.token for p in proposals(text.look_up())] == [1, 2]


def test_a_continuation_follows_the_agreeing_copies() -> None:
    text = RequestText(256)
    text.start("a", None)
    text.add_prompt([5, 6, 1, 2, 3, 4, 5, 6])
    assert followed(text, [], 4) == [1, 2, 3, 4]
    assert followed(text, [1, 2], 2) == [3, 4]


def test_the_copy_may_overlap_the_text_it_continues() -> None:
    text = RequestText(256)
    text.start("a", None)
    text.add_prompt([1, 2, 1, 2, 1, 2])
    assert followed(text, [], 2) == [1, 2]


def test_a_new_request_starts_without_the_old_text() -> None:
    text = RequestText(256)
    text.start("a", None)
    text.add_prompt([1, 2, 3, 1, 2])
    text.start("a", None)
    text.add_prompt([1, 2])
    assert text.look_up() == []
    assert text.finished() == [1, 2]


def test_finished_requests_help_their_tenant() -> None:
    tenants = TenantTexts(1024)
    text = RequestText(256)
    text.start("a", tenants)
    text.add_prompt([1, 2, 3])
    text.add_emitted([4, 5, 6, 7])
    tenants.add("a", text.finished())
    drain(tenants)
    text.start("a", tenants)
    text.add_prompt([3, 4])
    assert followed(text, [], 3) == [5, 6, 7]


def test_requests_do_not_run_into_each_other() -> None:
    tenants = TenantTexts(1024)
    tenants.add("a", [1, 2, 3])
    tenants.add("a", [8, 9])
    drain(tenants)
    text = RequestText(256)
    text.start("a", tenants)
    text.add_prompt([2, 3])
    assert followed(text, [], 5) == []


def test_no_tenant_sees_the_canary_of_another() -> None:
    tenants = TenantTexts(4096)
    rng = random.Random(11)
    text = RequestText(256)
    seen = {"a": 0, "b": 0}
    for number in range(10_000):
        tenant = "ab"[number % 2]
        text.start(tenant, tenants)
        text.add_prompt([rng.randrange(900) for _ in range(4)])
        start = rng.randrange(5)
        text.add_emitted(CANARY[: start + 1])
        if any(proposal.token in CANARY for proposal in proposals(text.look_up())):
            seen[tenant] += 1
        if tenant == "a":
            text.add_emitted(CANARY[start + 1 :])
            tenants.add("a", text.finished())
        tenants.take_in(64)
    assert seen["b"] == 0
    # Control: the same look-up by the owner finds it.
    assert seen["a"] > 1000


def test_tenants_are_forgotten_in_order_of_use() -> None:
    tenants = TenantTexts(64, max_tenants=2)
    for tenant in ("a", "b"):
        tenants.add(tenant, [1])
    assert tenants.find("a") is not None
    tenants.add("c", [1])
    assert tenants.find("b") is None
    assert tenants.find("a") is not None
    assert len(tenants) == 2


def test_memory_is_bounded_whatever_is_added() -> None:
    tenants = TenantTexts(1024, max_tenants=4)
    for number in range(50):
        tenants.add(f"tenant-{number % 8}", list(range(5000)))
    drain(tenants)
    assert tenants.size_bytes <= 4 * 1024 * 36
    text = RequestText(1 << 30)
    text.start("a", None)
    text.add_prompt(list(range(5000)))
    assert len(text.finished()) == MAX_KEPT_PROMPT
