"""R5, R6: memory, files, threads and tasks after many requests, and speed after long load."""

from __future__ import annotations

import asyncio
import gc
import mmap
import random
import threading
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from services.client import Client
from tests.service.front import RunningServer, running
from tests.service.small import small_engine

MIB = 1 << 20
SOAK_SECONDS = 600


@pytest.fixture(scope="module")
def server(byte_model: Path) -> Iterator[RunningServer]:
    with running(small_engine(byte_model, context_length=256)) as started:
        yield started


def _rss() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def _held(server: RunningServer) -> dict[str, int]:
    """Return what may not grow: descriptors, threads and the server's tasks."""

    async def tasks() -> int:
        await asyncio.sleep(0.2)
        return len(asyncio.all_tasks())

    gc.collect()
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "tasks": server.call(tasks()),
    }


def _ask(client: Client, index: int, rng: random.Random, cancels: bool) -> None:
    """Run one short request; now and then leave it early, at once or after a part."""
    prompt, options = f"request {index}", {"max_tokens": 8, "seed": index, "ignore_eos": True}
    if not cancels or rng.random() >= 0.02:
        client.generate(prompt, **options)
        return
    stream = client.stream(prompt, **options)
    for _ in range(rng.randrange(3)):
        next(stream, None)
    stream.close()


def _growth(server: RunningServer, first: int, then: int, cancels: bool = True) -> int:
    """Return the bytes that `then` requests add after the `first`; the rest must not grow."""
    rng = random.Random(5)
    with Client(server.target) as client:
        for index in range(first):
            _ask(client, index, rng, cancels)
        assert server.seconds_to_free() < 1
        before, bytes_before = _held(server), _rss()
        for index in range(first, first + then):
            _ask(client, index, rng, cancels)
        assert server.seconds_to_free() < 1
        after = _held(server)
    assert all(after[name] <= before[name] + 1 for name in before), (before, after)
    server.engine.scheduler.check_integrity()
    assert server.server._servicer.num_live == 0, "no id is held"
    growth = _rss() - bytes_before
    print(f"{then} requests: {growth / MIB:.2f} MiB")
    return growth


def test_hundreds_of_requests_leave_nothing_behind(server: RunningServer) -> None:
    assert _growth(server, first=40, then=160) <= 8 * MIB


@pytest.mark.slow
def test_ten_thousand_requests_leave_nothing_behind(server: RunningServer) -> None:
    assert _growth(server, first=1000, then=9000) <= 8 * MIB


def test_a_request_that_is_kept_shows(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: pages of their own, 1 MiB for each of 40 requests, are found."""
    kept: list[mmap.mmap] = []
    real = server.engine.scheduler.submit

    def submit(request) -> None:
        kept.append(mmap.mmap(-1, MIB))
        kept[-1].write(b"x" * MIB)
        real(request)

    monkeypatch.setattr(server.engine.scheduler, "submit", submit)
    assert _growth(server, first=5, then=40, cancels=False) > 8 * MIB


@pytest.mark.soak
def test_ten_minutes_of_load_are_as_fast_at_the_end(server: RunningServer) -> None:
    """p99 of the last minute against the second; memory against time; no error."""
    begun, lock = time.monotonic(), threading.Lock()
    moments, seconds, sizes = array("d"), array("d"), array("d")

    def load(worker: int) -> None:
        rng = random.Random(worker)
        with Client(server.target) as client:
            while (start := time.monotonic()) < begun + SOAK_SECONDS:
                _ask(client, worker, rng, cancels=True)
                with lock:
                    moments.append(start - begun)
                    seconds.append(time.monotonic() - start)
                    sizes.append(_rss())

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(load, worker) for worker in range(2)]:
            done.result()
    rows = list(zip(moments, seconds, sizes, strict=True))
    last = _p99([took for at, took, _ in rows if at > SOAK_SECONDS - 60])
    assert last <= 1.2 * _p99([took for at, took, _ in rows if 60 <= at < 120])
    half = [size for at, _, size in rows if at > SOAK_SECONDS / 2]
    assert (half[-1] - half[0]) / (SOAK_SECONDS / 2 / 60) <= MIB
    server.engine.scheduler.check_integrity()


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def test_a_broken_channel_is_an_error_not_a_hang() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(grpc.RpcError) as caught:
        client.generate("nobody", timeout=2)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
