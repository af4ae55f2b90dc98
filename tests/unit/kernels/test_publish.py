"""The publication moves on the CPU: exactly the path's rows, or nothing."""

import random
from types import ModuleType

import pytest
import torch

from services.contract.limits import PAGE
from services.kernels import publish
from services.kernels.norm.cases import normal
from services.kernels.publish import cpu, reference
from services.kernels.publish.cases import make_paths, make_words


class Slots:
    """The buffers of three slots; the row sets that are not active hold NaN."""

    def __init__(self, seed: int, nodes: list[list[int]], length: int) -> None:
        self.words = make_words(3, epoch=5, cycle=9, length=length)
        self.words[1, 2] = 1
        self.path = make_paths(self.words, nodes)
        self.raw_ring, self.conv = normal(3, 2, 32, 40, seed=seed), normal(3, 2, 2, 3, 40, seed=1)
        self.conv[[0, 1, 2], [1, 0, 1]] = torch.nan
        self.kv_ring = normal(3, 2, 2, 2, 32, 16, seed=seed + 1)
        self.kv = torch.full((2, 12, 2, 2, PAGE, 16), torch.nan)
        self.page_table = torch.randperm(12).view(3, 4).int()

    def publish(self, backend: ModuleType, slots: list[int]) -> list[torch.Tensor]:
        """Run the three moves; return all that they may write."""
        which = torch.tensor(slots, dtype=torch.int32)
        state = self.words, self.path, which
        backend.conv_gather(self.raw_ring, self.conv, *state)
        backend.kv_scatter(self.kv_ring, self.kv, self.page_table, *state)
        backend.flip(*state)
        return [self.conv, self.kv, self.words]


def assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Compare bits, NaN included."""
    for a, b in zip(actual, expected, strict=True):
        assert torch.equal(a.view(torch.int32), b.view(torch.int32))


@pytest.mark.parametrize("length", [0, 1, 62, 63, 64, 120])
def test_moves_equal_reference_bitwise(length: int, seed: int) -> None:
    rng = random.Random(seed)
    for count in (1, 2, 3, 4, 16):
        nodes = [sorted(rng.sample(range(32), count)) for _ in range(3)]
        torch.manual_seed(seed)
        ours = Slots(seed, nodes, length)
        torch.manual_seed(seed)
        theirs = Slots(seed, nodes, length)
        assert_same(ours.publish(publish, [2, 1]), theirs.publish(reference, [2, 1]))
        assert ours.words[:, 2].tolist() == [0, 0, 1]
        assert ours.words[:, 3].tolist() == [length, length + count, length + count]
        assert ours.words[:, 1].tolist() == [9, 10, 10]


def test_moves_place_the_rows_of_the_path(seed: int) -> None:
    slots = Slots(seed, [[0], [0, 3, 7, 9, 11], [0, 2]], 62)
    slots.publish(publish, [0, 1, 2])
    assert torch.equal(slots.conv[1, 0], slots.raw_ring[1][:, [7, 9, 11]])
    assert torch.equal(slots.conv[2, 1, :, 1:], slots.raw_ring[2][:, [0, 2]])
    assert torch.equal(slots.conv[2, 1, :, 0], slots.conv[2, 0, :, 2])
    for index, node in enumerate([0, 3, 7, 9, 11]):
        page = slots.page_table[1, (62 + index) // PAGE]
        row = slots.kv[:, page, :, :, (62 + index) % PAGE]
        assert torch.equal(row, slots.kv_ring[1, :, :, :, node])


@pytest.mark.parametrize("word", [0, 1], ids=["epoch", "cycle"])
@pytest.mark.parametrize("backend", [cpu, reference], ids=["cpu", "reference"])
def test_a_stale_path_changes_nothing(word: int, backend: ModuleType, seed: int) -> None:
    slots = Slots(seed, [[0, 1]] * 3, 5)
    slots.path[:, word] -= 1
    before = [tensor.clone() for tensor in (slots.conv, slots.kv, slots.words)]
    assert_same(slots.publish(backend, [0, 1, 2]), before)
    slots.path[:, word] += 1
    after = slots.publish(backend, [0, 1, 2])
    assert not torch.equal(after[2], before[2]) and not after[0].isnan().any()


def test_repeating_a_move_before_the_flip_changes_nothing(seed: int) -> None:
    slots = Slots(seed, [[0, 1, 5]] * 3, 63)
    state = slots.words, slots.path, torch.tensor([0, 1, 2], dtype=torch.int32)
    results = []
    for _ in range(2):
        publish.conv_gather(slots.raw_ring, slots.conv, *state)
        publish.kv_scatter(slots.kv_ring, slots.kv, slots.page_table, *state)
        results.append([slots.conv.clone(), slots.kv.clone(), slots.words.clone()])
    assert_same(*results)
