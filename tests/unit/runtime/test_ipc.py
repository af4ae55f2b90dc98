"""Shared memory without a name, its map, its probe."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from services.contract.errors import InvalidField, PreconditionError, UnavailableError
from services.runtime import ipc
from services.runtime.arena import Arena, BufferSpec, layout
from services.runtime.ipc import cuda, probe
from services.runtime.ipc.host import SharedFile, map_file

SPECS = [BufferSpec("recurrent", (2, 3, 5), torch.float32), BufferSpec("words", (4,), torch.int32)]
OTHER = """
import sys, torch
from services.runtime.ipc.host import map_file
block = map_file(sys.argv[1], 4096)
block[7] += 1
print(int(block[7]))
"""


def test_another_process_reads_and_writes_the_same_bytes() -> None:
    file = SharedFile("test", 4096)
    block = map_file(file.path, 4096)
    block[7] = 41
    done = subprocess.run([sys.executable, "-c", OTHER, file.path], capture_output=True, text=True)
    assert (done.stdout.strip(), int(block[7])) == ("42", 42)
    file.close()


def test_memory_outlives_its_file_and_leaves_no_name() -> None:
    file = SharedFile("test", 4096)
    block = map_file(file.path, 4096)
    path = file.path
    file.close()
    block[0] = 9
    assert int(block[0]) == 9
    with pytest.raises(UnavailableError):
        map_file(path, 4096)


def test_a_file_smaller_than_said_is_refused() -> None:
    file = SharedFile("test", 4096)
    with pytest.raises(UnavailableError, match="8192"):
        map_file(file.path, 8192)
    file.close()


def test_an_arena_is_opened_from_its_map_alone() -> None:
    file = SharedFile("verifier", layout(SPECS)[1])
    own = Arena("verifier", SPECS, storage=map_file(file.path, layout(SPECS)[1]))
    item = own.buffer_map(3, ipc.CPU_SHM, ipc.export_block(own.storage, ipc.CPU_SHM, file.path))
    theirs = Arena.mapped(item, ipc.import_block(item.handle, item.mode, item.size_bytes))
    theirs["words"][2] = 77
    assert int(own["words"][2]) == 77
    assert own["words"].data_ptr() != theirs["words"].data_ptr()
    file.close()


def test_the_probe_sees_what_was_written_and_nothing_else() -> None:
    file = SharedFile("verifier", layout(SPECS)[1])
    size = layout(SPECS)[1]
    own, theirs = (Arena("verifier", SPECS, storage=map_file(file.path, size)) for _ in range(2))
    apart = Arena("verifier", SPECS)
    probe.write(own, 5)
    assert probe.read(theirs, 5)
    assert not probe.read(theirs, 6) and not probe.read(apart, 5)
    probe.clear(own)
    assert not theirs["recurrent"].any()
    file.close()


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_expandable_segments_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "max_split_size_mb:64, expandable_segments: True")
    with pytest.raises(PreconditionError, match="unset"):
        cuda.refuse_expandable_segments()
    monkeypatch.setenv(name, "expandable_segments:False")
    cuda.refuse_expandable_segments()


def test_unknown_transport_is_refused() -> None:
    with pytest.raises(InvalidField):
        ipc.import_block(b"", "carrier_pigeon", 1)
    assert (ipc.transport_of("cpu"), ipc.transport_of("cuda:1")) == ("cpu_shm", "cuda_ipc")


def test_closing_gives_the_descriptor_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        SharedFile("test", 4096).close()
    assert len(os.listdir("/proc/self/fd")) == before
