"""Mutated weight files: one kind of error, bounded time and memory, no laxer than the library."""

import json
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from services.contract.errors import CheckpointError
from services.model import header
from services.model.header import MAX_HEADER_BYTES, read_header

MAX_SECONDS, MAX_MEMORY = 2.0, 256 << 20
Raw = tuple[bytes, bytes]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    kinds = (torch.float32, torch.bfloat16, torch.uint8)
    tensors = {f"layers.{i}.weight": torch.zeros(4, 3 + i).to(kinds[i % 3]) for i in range(12)}
    path = tmp_path_factory.mktemp("whole") / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    return path.read_bytes()


def split(whole: bytes) -> Raw:
    length = int.from_bytes(whole[:8], "little")
    return whole[8 : 8 + length], whole[8 + length :]


def join(head: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(head)) + head + data


def flip_bytes(choose: Random, whole: bytes) -> bytes:
    raw = bytearray(whole)
    for _ in range(choose.choice((1, 2, 16))):
        raw[choose.randrange(len(raw))] = choose.randrange(256)
    return bytes(raw)


def truncate(choose: Random, whole: bytes) -> bytes:
    return whole[: choose.randrange(len(whole))]


def grow(choose: Random, whole: bytes) -> bytes:
    return whole + bytes(choose.randrange(1, 500))


def lie_about_length(choose: Random, whole: bytes) -> bytes:
    length = choose.choice((0, 1, 2**63, 2**64 - 1, MAX_HEADER_BYTES + 1, choose.randrange(2**33)))
    return struct.pack("<Q", length) + whole[8:]


def change_entry(choose: Random, whole: bytes) -> bytes:
    head, data = split(whole)
    entries = json.loads(head)
    entry = entries[choose.choice([name for name in entries if name != "__metadata__"])]
    junk = (-1, 0, 2**70, 1.5, None, "x", [], {}, True, [1, 2], "BF16", "F32", "I64")
    part = choose.choice(("dtype", "shape", "data_offsets"))
    if part == "dtype" or choose.random() < 0.2:
        entry[part] = choose.choice(junk)
    else:
        entry[part][choose.randrange(len(entry[part]))] = choose.choice((*junk, 1, 64, 4096))
    return join(json.dumps(entries).encode(), data)


def change_names(choose: Random, whole: bytes) -> bytes:
    head, data = split(whole)
    entries = json.loads(head)
    name = choose.choice(list(entries))
    entry = entries.pop(name)
    kind = choose.randrange(3)
    if kind == 0:
        return join(json.dumps(entries).encode(), data)
    if kind == 1:
        doubled = json.dumps(entry)
        text = json.dumps(entries)[:-1] + f', "{name}": {doubled}, "{name}": {doubled}}}'
        return join(text.encode(), data)
    entries[choose.choice(("", "\u0000", "../x", "a" * 5000))] = entry
    return join(json.dumps(entries).encode(), data)


def fill_header(choose: Random, whole: bytes) -> bytes:
    unit = choose.choice((b"[", b'{"a":', b"[0,", b"[[],", b'"x":1,', b" ", b"1", b'"', b"\xff"))
    head = unit * (choose.choice((1000, 100_000, MAX_HEADER_BYTES)) // len(unit))
    return join(choose.choice((b"", b"{", b"[")) + head[: MAX_HEADER_BYTES - 1], b"")


MUTATIONS: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(flip_bytes, flip_bytes, truncate, grow, lie_about_length),
    *(change_entry, change_entry, change_entry, change_names),
)


def opens_in_the_library(path: Path) -> bool:
    try:
        with safe_open(path, framework="pt") as file:
            return bool(list(file.keys())) or True
    except (SafetensorError, ValueError):
        return False


def hunt(path: Path, whole: bytes, count: int, seed: int) -> tuple[int, int]:
    """Read mutants; return how many were refused, and how many only the library refuses."""
    choose = Random(seed)
    refused = laxer = 0
    with path.open("w+b") as file:
        for _ in range(count):
            file.seek(0)
            file.write(choose.choice(MUTATIONS)(choose, whole))
            file.truncate()
            file.flush()
            start = time.perf_counter()
            try:
                read_header(path)
            except CheckpointError:
                refused += 1
            else:
                laxer += not opens_in_the_library(path)
            assert time.perf_counter() - start <= MAX_SECONDS
    return refused, laxer


def test_mutants_give_one_error_and_are_never_laxer(
    tmp_path: Path, whole: bytes, seed: int
) -> None:
    refused, laxer = hunt(tmp_path / "model.safetensors", whole, 3000, seed)
    assert 2000 < refused < 3000
    assert laxer == 0


@pytest.mark.slow
def test_fifty_thousand_mutants_give_one_error(tmp_path: Path, whole: bytes, seed: int) -> None:
    refused, laxer = hunt(tmp_path / "model.safetensors", whole, 50_000, seed)
    assert 33_000 < refused < 50_000
    assert laxer == 0


def test_hunt_finds_a_reader_that_lacks_a_check(
    tmp_path: Path, whole: bytes, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header, "_check_tiling", lambda *_: None)
    _, laxer = hunt(tmp_path / "model.safetensors", whole, 600, seed)
    assert laxer > 0


def test_largest_headers_are_refused_in_bounded_memory(tmp_path: Path, seed: int) -> None:
    path, choose = tmp_path / "model.safetensors", Random(seed)
    for _ in range(24):
        path.write_bytes(fill_header(choose, b""))
        tracemalloc.start()
        start = time.perf_counter()
        with pytest.raises(CheckpointError, match=r"model\.safetensors"):
            read_header(path)
        assert time.perf_counter() - start <= MAX_SECONDS
        assert tracemalloc.get_traced_memory()[1] <= MAX_MEMORY
        tracemalloc.stop()
