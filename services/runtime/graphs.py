"""Captured CUDA graphs and pinned copies: what keeps a cycle's host work small on a GPU.

On a CPU both do nothing: work runs as it is called, and a mirror is the tensor itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch


class Graphs:
    """Run pieces of a cycle, each captured at its first use and replayed from then on.

    Work may read nothing but tensors that stay where they are. Its first call runs it plainly,
    which compiles its kernels and makes its scratch, and then records it.
    """

    def __init__(self, device: torch.device) -> None:
        self._captures = device.type == "cuda"
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}

    def run(self, key: Hashable, work: Callable[[], None]) -> None:
        """Do the work of `key`; equal keys must mean equal work."""
        if not self._captures:
            work()
        elif key in self._graphs:
            self._graphs[key].replay()
        else:
            work()
            self._graphs[key] = _captured(work)

    def items(self) -> list[tuple[Hashable, torch.cuda.CUDAGraph]]:
        """Return what was captured so far."""
        return list(self._graphs.items())

    def clear(self) -> None:
        """Forget every graph, before the memory that they name is freed."""
        self._graphs.clear()


def _captured(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


class Mirror:
    """A device tensor and its copy in host memory; one tensor on a CPU."""

    def __init__(self, device_tensor: torch.Tensor) -> None:
        self.device = device_tensor
        self.host = device_tensor
        if device_tensor.is_cuda:
            self.host = torch.zeros_like(device_tensor, device="cpu", pin_memory=True)
        # A numpy view: an assignment to a tensor costs ten times as much.
        self._numbers = self.host.numpy()

    def write(self, values: Sequence[int]) -> None:
        """Set the first entries of the host's copy; `push` brings them to the device."""
        self._numbers[: len(values)] = values

    def fetch(self) -> None:
        """Start the copy to the host; `finish` waits for it."""
        if self.device.is_cuda:
            self.host.copy_(self.device, non_blocking=True)

    def push(self, count: int) -> torch.Tensor:
        """Start the copy of the first `count` entries to the device and return them there."""
        if self.device.is_cuda:
            self.device[:count].copy_(self.host[:count], non_blocking=True)
        return self.device[:count]


def finish(device: torch.device) -> None:
    """Wait until the device has done everything that was asked of it."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
