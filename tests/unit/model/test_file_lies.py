"""Every way weight files may not be what they say is refused, naming the file."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.contract.errors import CheckpointError
from services.model.checkpoint import Checkpoint
from services.model.header import MAX_HEADER_BYTES, MAX_TENSORS
from services.model.weights import load_mtp, load_target
from tests.oracle.models import Tensors, random_tensors, stored_names, tiny_config, write_folder

Lie = Callable[[Path], None]
SHARD = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


@pytest.fixture(scope="module")
def tensors() -> Tensors:
    return stored_names(random_tensors(tiny_config()))


def open_and_load(folder: Path) -> None:
    """Do all that happens before serving."""
    checkpoint = Checkpoint.open(folder)
    load_target(checkpoint, torch.float32)
    load_mtp(checkpoint, torch.float32)


def shard_lie(change: Callable[[Path], None]) -> Lie:
    return lambda folder: change(folder / SHARD)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def cut_in_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def zero_bytes(path: Path) -> None:
    path.write_bytes(b"")


def garbage_header(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 16) + b"not json at all!" + bytes(64))


def huge_header(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", MAX_HEADER_BYTES + 1) + bytes(1000))


def deep_header(path: Path) -> None:
    raw = b'{"a":' * 30_000
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)


def many_tensors(path: Path) -> None:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    raw = json.dumps({f"t{i}": entry for i in range(MAX_TENSORS + 1)}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)


def trailing_bytes(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(64))


def index_names_another_file(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    name = next(name for name, file in index["weight_map"].items() if file == SHARD)
    index["weight_map"][name] = SHARD.replace("2", "1", 1)
    (folder / INDEX).write_text(json.dumps(index))


def index_leaves_the_folder(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["lm_head.weight"] = "../other/model.safetensors"
    (folder / INDEX).write_text(json.dumps(index))


def both_layouts(folder: Path) -> None:
    (folder / SINGLE).write_bytes((folder / SHARD).read_bytes())


SHARD_LIES: dict[str, tuple[Lie, str]] = {
    "missing shard": (shard_lie(Path.unlink), f"{SHARD}: missing"),
    "truncated shard": (shard_lie(truncate), f"{SHARD}: truncated"),
    "cut in the header": (shard_lie(cut_in_header), f"{SHARD}: truncated"),
    "zero-byte shard": (shard_lie(zero_bytes), f"{SHARD}: empty"),
    "garbage header": (shard_lie(garbage_header), f"{SHARD}: the header is not valid JSON"),
    "huge header": (shard_lie(huge_header), f"{SHARD}: header is"),
    "deep header": (shard_lie(deep_header), f"{SHARD}: the header is not valid JSON"),
    "too many tensors": (shard_lie(many_tensors), f"{SHARD}: more than {MAX_TENSORS}"),
    "trailing bytes": (shard_lie(trailing_bytes), f"{SHARD}: 64 bytes after the last tensor"),
    "index names the wrong file": (index_names_another_file, "the index says it holds"),
    "index leaves the folder": (index_leaves_the_folder, "is no plain .safetensors name"),
    "two layouts at once": (both_layouts, "both model.safetensors and"),
    "no index": (lambda folder: (folder / INDEX).unlink(), "are missing"),
}


@pytest.mark.parametrize("name", SHARD_LIES)
def test_a_lie_about_files_is_refused(tmp_path: Path, tensors: Tensors, name: str) -> None:
    tell, message = SHARD_LIES[name]
    folder = write_folder(tmp_path / "model", tiny_config(), tensors, shards=3)
    open_and_load(folder)
    tell(folder)
    with pytest.raises(CheckpointError, match=message):
        open_and_load(folder)


def test_manifest_names_the_file_that_changed(tmp_path: Path, tensors: Tensors) -> None:
    folder = write_folder(tmp_path / "model", tiny_config(), tensors)
    path = folder / SINGLE
    manifest = {"files": {SINGLE: {"bytes": path.stat().st_size, "sha256": "0" * 64}}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"model.safetensors: its SHA-256 is not"):
        open_and_load(folder)


def test_shards_hold_what_the_index_says(tmp_path: Path, tensors: Tensors) -> None:
    folder = write_folder(tmp_path / "model", tiny_config(), tensors, shards=3)
    extra = load_file(folder / SHARD) | {"mtp.extra.weight": torch.ones(2)}
    save_file(extra, folder / SHARD)
    with pytest.raises(CheckpointError, match=r"holds mtp.extra.weight, which the index"):
        open_and_load(folder)
