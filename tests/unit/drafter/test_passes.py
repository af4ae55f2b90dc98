"""MTP passes foresee penalties, pad what a slab needs, and stop where they are told to."""

import torch

from services.contract.sampling import SamplingParams
from services.drafter.passes import MtpPasses, NewRows
from services.drafter.penalties import DraftPenalties
from tests.unit.drafter.rig import GRID, SLOTS, VOCAB, WIDTH, FakeHead, following


def passes_of(head: FakeHead) -> tuple[MtpPasses, torch.Tensor, torch.Tensor]:
    """Return passes over the stand-in block, the counts and the biases that they see."""
    counts = torch.zeros((SLOTS, VOCAB), dtype=torch.int32)
    bias = torch.zeros((SLOTS, VOCAB))
    hidden = torch.zeros((SLOTS, 2, 32, WIDTH)), torch.zeros((GRID, WIDTH))
    passes = MtpPasses(head, *hidden, VOCAB, DraftPenalties(counts, bias))
    return passes, counts, bias


def row(
    slot: int, sampling: SamplingParams | None = None, token: int = 15, num_passes: int = 3
) -> NewRows:
    """Return one new row of a slot."""
    return NewRows(slot, 4, (token,), (0,), 0, num_passes, None, sampling)


def test_an_emitted_token_is_drafted_less_under_a_presence_penalty() -> None:
    passes, counts, _ = passes_of(FakeHead())
    first = following(15)
    counts[1, first] = 3
    for sampling, expected in (
        (SamplingParams(), first),
        (SamplingParams(presence_penalty=0.5), first),
        (SamplingParams(presence_penalty=1.5), first + 1),
        (SamplingParams(frequency_penalty=0.5), first + 1),
    ):
        assert passes.run([row(1, sampling)], 3)[0].tokens[0][0] == expected % VOCAB


def test_penalties_of_one_sequence_leave_its_neighbour_alone() -> None:
    passes, counts, _ = passes_of(FakeHead())
    counts[:, following(15)] = 1
    alone = passes.run([row(0, SamplingParams())], 3)[0]
    pair = [row(2, SamplingParams(presence_penalty=2.0)), row(0, SamplingParams())]
    together = passes.run(pair, 3)
    assert together[1] == alone
    assert together[0].tokens[0] != alone.tokens[0]
    assert passes.run([row(0, SamplingParams())], 3)[0] == alone


def test_a_banned_token_is_not_drafted() -> None:
    passes, _, bias = passes_of(FakeHead())
    first = following(15)
    bias[3, first] = -torch.inf
    found = passes.run([row(3, SamplingParams(banned_token_ids=(first,)))], 3)[0]
    assert found.tokens[0] == [(first + 1 + rank) % VOCAB for rank in range(3)]
    assert all(logprob > -20 for logprob in found.logprobs[0])


def test_a_slab_is_as_wide_and_as_deep_as_its_longest_sequence() -> None:
    head = FakeHead()
    passes, _, _ = passes_of(head)
    rows = [
        NewRows(0, 4, (1, 2, 3), (0, 1, 4), 1, 1),
        NewRows(2, 9, (7,), (0,), 0, 4),
        NewRows(3, 2, (8, 9), (0, 2), 1, 0),
    ]
    found = passes.run(rows, 2)
    assert head.firsts[-1][0] == [1, 2, 3, 7, 0, 0, 8, 9, 0]
    assert [len(each.tokens) for each in found] == [1, 4, 0]
    assert head.chained == [[0, 1, 0]] * 3
    assert found[1].spine() == [following(7), *chain(following(7), 3)]


def chain(token: int, count: int) -> list[int]:
    """Return what follows a drafted token."""
    tokens = []
    for _ in range(count):
        token = following(token)
        tokens.append(token)
    return tokens


def test_watches_end_their_own_sequence_only() -> None:
    class Stop:
        def __init__(self, after: int) -> None:
            self.left = after

        def take(self, token: int, logprob: float) -> bool:
            self.left -= 1
            return self.left > 0

    head = FakeHead()
    passes, _, _ = passes_of(head)
    rows = [NewRows(s, 4, (15,), (0,), 0, 8, Stop(after)) for s, after in ((0, 1), (1, 3))]
    found = passes.run(rows, 2)
    assert [len(each.tokens) for each in found] == [1, 3]
    assert head.chained == [[0, 1], [0, 1]]
    assert found[0].tokens == found[1].tokens[:1]
