"""What the other processes of the CUDA IPC tests do; they import it by this name."""

from __future__ import annotations

from multiprocessing.connection import Connection

import torch

from services.runtime import ipc
from services.runtime.ipc.events import EdgeEvents

SIZE = 8 << 20


def own(pipe: Connection) -> None:
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


def add(pipe: Connection, handle: bytes, events: list[bytes]) -> None:
    """Add 1000 to the owner's block by a graph, behind the owner's event."""
    block = ipc.import_block(handle, ipc.CUDA_IPC, SIZE)
    upstream, own = EdgeEvents.opened(events, block.device), EdgeEvents.made_on("cuda")
    graph = adding(block, 1000)
    pipe.send(own.handles)
    while True:
        number = pipe.recv()
        upstream.wait(number)
        graph.replay()
        own.record(number)
        pipe.send("added")


def adding(block: torch.Tensor, amount: int) -> torch.cuda.CUDAGraph:
    """Return a graph that adds an amount to every number of a block."""
    numbers = block.view(torch.int32)
    numbers.add_(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        numbers.add_(amount)
    return graph
