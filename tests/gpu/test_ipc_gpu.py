"""CUDA memory and events between processes: both ways, in graphs, and after a death."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

from services.contract.errors import UnavailableError
from services.runtime import ipc
from services.runtime.ipc.events import EdgeEvents

pytestmark = pytest.mark.gpu
SIZE = 8 << 20
ROUNDS = 200


def _owner(pipe: Connection) -> None:
    """Own a block: write n to it, let the importer add to it, read it back."""
    block = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
    numbers = block.view(torch.int32)
    own = EdgeEvents.made_on("cuda")
    pipe.send((ipc.export_block(block, ipc.CUDA_IPC, ""), own.handles))
    theirs = EdgeEvents.opened(pipe.recv(), block.device)
    while True:
        word, number = pipe.recv()
        if word == "write":
            numbers.fill_(number)
            own.record(number)
            pipe.send("written")
        elif word == "export":
            pipe.send((ipc.export_block(block, ipc.CUDA_IPC, ""), own.handles))
        else:
            theirs.wait(number)
            pipe.send((int(numbers[0]), int(numbers[-1])))


class Owner:
    """The owner's process and what it lends."""

    def __init__(self) -> None:
        context = mp.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_owner, args=(other,), daemon=True)
        self.process.start()
        self.handle, events = self.pipe.recv()
        self.block = ipc.import_block(self.handle, ipc.CUDA_IPC, SIZE)
        self.upstream = EdgeEvents.opened(events, self.block.device)
        self.own = EdgeEvents.made_on("cuda")
        self.pipe.send(self.own.handles)

    def ask(self, *words: Any) -> Any:
        """Return the owner's answer."""
        self.pipe.send(words)
        return self.pipe.recv()


@pytest.fixture
def owner() -> Iterator[Owner]:
    made = Owner()
    yield made
    made.process.kill()
    made.process.join()


def test_values_and_events_pass_both_ways_through_a_graph(owner: Owner) -> None:
    graph = _adding(owner.block, 1000)
    times = []
    for number in range(ROUNDS):
        start = time.perf_counter()
        owner.ask("write", number)
        owner.upstream.wait(number)
        graph.replay()
        owner.own.record(number)
        assert owner.ask("read", number) == (number + 1000, number + 1000)
        times.append((time.perf_counter() - start) * 1e6)
    print(f"two messages each way: p50 {statistics.median(times):.0f} us")


def _second(pipe: Connection, handle: bytes, events: list[bytes]) -> None:
    """Add 1000 to the owner's block by a graph, behind the owner's event."""
    block = ipc.import_block(handle, ipc.CUDA_IPC, SIZE)
    upstream, own = EdgeEvents.opened(events, block.device), EdgeEvents.made_on("cuda")
    graph = _adding(block, 1000)
    pipe.send(own.handles)
    while True:
        number = pipe.recv()
        upstream.wait(number)
        graph.replay()
        own.record(number)
        pipe.send("added")


def _adding(block: torch.Tensor, amount: int) -> torch.cuda.CUDAGraph:
    numbers = block.view(torch.int32)
    numbers.add_(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        numbers.add_(amount)
    return graph


@pytest.fixture
def second(owner: Owner) -> Iterator[Connection]:
    context = mp.get_context("spawn")
    pipe, other = context.Pipe()
    lent = owner.ask("export", 0)
    process = context.Process(target=_second, args=(other, *lent), daemon=True)
    process.start()
    yield pipe
    process.kill()
    process.join()


def test_three_processes_pass_a_block_around_a_ring(owner: Owner, second: Connection) -> None:
    edge = EdgeEvents.opened(second.recv(), owner.block.device)
    graph = _adding(owner.block, 1_000_000)
    times = []
    for number in range(ROUNDS):
        start = time.perf_counter()
        owner.ask("write", number)
        second.send(number)
        assert second.recv() == "added"
        edge.wait(number)
        graph.replay()
        owner.own.record(number)
        assert owner.ask("read", number) == (number + 1_001_000,) * 2
        times.append((time.perf_counter() - start) * 1e6)
    print(f"a ring of three: p50 {statistics.median(times):.0f} us")


def test_without_the_second_process_its_part_is_missing(owner: Owner) -> None:
    graph = _adding(owner.block, 1_000_000)
    owner.ask("write", 4)
    owner.upstream.wait(4)
    graph.replay()
    owner.own.record(4)
    assert owner.ask("read", 4) == (1_000_004, 1_000_004)


def test_without_the_importers_write_the_owner_reads_its_own(owner: Owner) -> None:
    owner.ask("write", 3)
    owner.own.record(3)
    assert owner.ask("read", 3) == (3, 3)


def test_the_death_of_the_owner_leaves_no_memory_and_its_handle_is_refused() -> None:
    torch.zeros(1, device="cuda")
    free = torch.cuda.mem_get_info()[0]
    made = Owner()
    assert made.process.pid is not None
    os.kill(made.process.pid, signal.SIGKILL)
    made.process.join()
    del made.block, made.upstream
    torch.cuda.ipc_collect()
    torch.cuda.synchronize()
    with pytest.raises(UnavailableError):
        ipc.import_block(made.handle, ipc.CUDA_IPC, SIZE)
    end = time.monotonic() + 5
    while free - torch.cuda.mem_get_info()[0] >= SIZE:
        assert time.monotonic() < end, "memory of a dead owner is still held"
        time.sleep(0.01)
