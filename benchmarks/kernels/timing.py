"""Measure kernels on a GPU: graph replays, read and copy rates, the machine, results as JSON."""

import json
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton

RESULTS = Path(__file__).resolve().parents[1] / "results"


class Times(NamedTuple):
    """Microseconds of one run: median, 10th and 90th percentile."""

    median: float
    p10: float
    p90: float


def machine() -> dict[str, Any]:
    """Return what a figure depends on."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "l2_mib": properties.L2_cache_size >> 20,
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def graph_times(runs: Sequence[Callable[[], None]], repeats: int = 40) -> Times:
    """Return the time of one of `runs`, captured together in one graph, so that inputs rotate."""
    for run in runs:
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for run in runs:
            run()
    return _timed(graph.replay, repeats, len(runs))


def eager_times(runs: Sequence[Callable[[], None]], repeats: int = 20) -> Times:
    """Return the same without a graph, for calls that cannot be captured."""

    def all_runs() -> None:
        for run in runs:
            run()

    return _timed(all_runs, repeats, len(runs))


def _timed(run: Callable[[], None], repeats: int, count: int) -> Times:
    for _ in range(5):
        run()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    times = sorted(1e3 * start.elapsed_time(end) / count for start, end in events)
    ends = times[repeats // 10], times[-1 - repeats // 10]
    return Times(statistics.median(times), *ends)


def memory_rates() -> dict[str, float]:
    """Return TB/s of a device copy (read and write counted) and of a pure read."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    total = torch.empty((), device="cuda")
    size = source.numel() * 4 / 1e6
    copy = graph_times([lambda: target.copy_(source)], 10).median
    read = graph_times([lambda: torch.sum(source, 0, out=total)], 10).median
    return {"copy_tb_s": 2 * size / copy, "read_tb_s": size / read}


def save(name: str, payload: dict[str, Any]) -> None:
    """Write benchmarks/results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(payload, indent=1) + "\n")
