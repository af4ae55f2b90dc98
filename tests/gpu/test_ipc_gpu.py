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
from tests.gpu.ipc_processes import SIZE, add, adding, own

pytestmark = pytest.mark.gpu
ROUNDS = 200


class Owner:
    """The owner's process and what it lends."""

    def __init__(self) -> None:
        context = mp.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=own, args=(other,), daemon=True)
        self.process.start()
        other.close()  # so that a process that dies ends the wait
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
    graph = adding(owner.block, 1000)
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


@pytest.fixture
def second(owner: Owner) -> Iterator[Connection]:
    context = mp.get_context("spawn")
    pipe, other = context.Pipe()
    lent = owner.ask("export", 0)
    process = context.Process(target=add, args=(other, *lent), daemon=True)
    process.start()
    other.close()
    yield pipe
    process.kill()
    process.join()


def test_three_processes_pass_a_block_around_a_ring(owner: Owner, second: Connection) -> None:
    edge = EdgeEvents.opened(second.recv(), owner.block.device)
    graph = adding(owner.block, 1_000_000)
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
    graph = adding(owner.block, 1_000_000)
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
