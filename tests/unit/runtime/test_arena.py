"""Arenas: aligned named views over one block, and the map that importers read."""

import pytest
import torch

from services.contract.errors import InvalidField
from services.runtime.arena import Arena, BufferSpec

SPECS = [
    BufferSpec("words", (3, 5), torch.int32),
    BufferSpec("state", (2, 7, 3), torch.float32),
    BufferSpec("mask", (11,), torch.uint8),
    BufferSpec("rows", (4, 2), torch.bfloat16),
]


def test_views_are_aligned_disjoint_and_start_at_zero() -> None:
    arena = Arena("verifier", SPECS)
    for index, spec in enumerate(SPECS):
        view = arena[spec.name]
        assert view.shape == spec.shape and view.dtype == spec.dtype
        assert view.data_ptr() % 256 == 0
        assert not view.view(torch.uint8).any()
        view.fill_(index + 1)
    assert [int(arena[spec.name].view(-1)[0]) for spec in SPECS] == [1, 2, 3, 4]


def test_importer_sees_the_same_memory() -> None:
    arena = Arena("verifier", SPECS)
    message = arena.buffer_map(epoch=3, mode="cpu_shm", handle=b"name")
    other = Arena.mapped(message, arena.storage)
    arena["state"][1, 2, 1] = 8.5
    assert other["state"][1, 2, 1] == 8.5
    assert list(other) == [spec.name for spec in SPECS]
    assert message.size_bytes == arena.size_bytes == arena.storage.numel()


def test_poison_is_nan_and_minus_one() -> None:
    arena = Arena("verifier", SPECS)
    arena.poison()
    assert arena["state"].isnan().all() and arena["rows"].isnan().all()
    assert (arena["words"] == -1).all()
    arena.poison(["mask"])


def test_repeated_name_is_refused() -> None:
    with pytest.raises(InvalidField, match="listed twice"):
        Arena("verifier", [SPECS[0], SPECS[0]])


def test_small_or_unaligned_storage_is_refused() -> None:
    size = Arena("verifier", SPECS).size_bytes
    block = torch.zeros(size + 512, dtype=torch.uint8)
    start = -block.data_ptr() % 256
    with pytest.raises(InvalidField, match="needs"):
        Arena("verifier", SPECS, storage=block[start : start + size - 1])
    with pytest.raises(InvalidField, match="must start"):
        Arena("verifier", SPECS, storage=block[start + 8 : start + 8 + size])


@pytest.mark.parametrize("change", ["offset", "dtype"])
def test_map_of_another_layout_is_refused(change: str) -> None:
    arena = Arena("verifier", SPECS)
    message = arena.buffer_map(epoch=3, mode="cpu_shm")
    if change == "offset":
        message.buffers[1].offset_bytes += 256
    else:
        message.buffers[1].dtype = "load"
    with pytest.raises(InvalidField):
        Arena.mapped(message, arena.storage)
