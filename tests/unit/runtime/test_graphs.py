"""Graphs and mirrors on a CPU: work runs as it is called, a mirror is the tensor itself."""

import pytest
import torch

from benchmarks.bench.command import bench
from services.contract.errors import InvalidField
from services.runtime.graphs import Graphs, Mirror


def test_words_written_reach_the_tensor_and_no_others() -> None:
    tensor = torch.full((6,), -1, dtype=torch.int32)
    mirror = Mirror(tensor)
    mirror.write([7, 8, 9])
    mirror.write((5,))
    assert mirror.push(3).tolist() == [5, 8, 9]
    assert tensor.tolist() == [5, 8, 9, -1, -1, -1]
    with pytest.raises(ValueError, match="could not broadcast"):
        mirror.write(range(7))


def test_work_runs_at_every_call() -> None:
    graphs, runs = Graphs(torch.device("cpu")), []
    for _ in range(3):
        graphs.run("key", lambda: runs.append(1))
    assert len(runs) == 3
    assert graphs.items() == []


@pytest.mark.parametrize(
    ("shape", "random_weights", "device", "field"),
    [
        ("qwen3.5-27b", False, "cuda", "--config"),
        ("qwen9-1t", True, "cuda", "--config"),
        ("", True, "cuda", "--config"),
        ("qwen3.5-27b", True, "cpu", "--device"),
    ],
)
def test_bench_refuses_a_shape_it_cannot_time(
    shape: str, random_weights: bool, device: str, field: str
) -> None:
    with pytest.raises(InvalidField) as refusal:
        bench(shape=shape, random_weights=random_weights, device=device)
    assert refusal.value.field == field
