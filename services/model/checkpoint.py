"""A checkpoint folder whose every tensor was found, with the right shape and type."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open

from services.contract.errors import CheckpointError
from services.model.config import ModelConfig, load_model_config
from services.model.fused import BA, QKVZ, split_ba, split_qkvz
from services.model.header import TensorEntry, file_error
from services.model.manifest import check_manifest
from services.model.shards import list_tensors
from services.model.tensor_names import HEAD, Shapes, mtp_tensors, target_tensors

_FLOATS: Final = ("BF16", "F16", "F32")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Hold a checked folder; tensors are read on demand."""

    folder: Path
    config: ModelConfig
    tensors: dict[str, TensorEntry]
    is_fused: bool

    @classmethod
    def open(cls, folder: Path) -> "Checkpoint":
        """Check a folder from its headers alone and return it.

        Raises  CheckpointError naming the one tensor or file at fault.
        """
        check_manifest(folder)
        checkpoint = cls.scan(folder)
        check_tensors(checkpoint)
        return checkpoint

    @classmethod
    def scan(cls, folder: Path) -> "Checkpoint":
        """Return a folder whose files are sound, with whatever tensors they hold."""
        config = load_model_config(folder)
        tensors = list_tensors(folder)
        is_fused = any(name.endswith(QKVZ) for name in tensors)
        return cls(folder, config, tensors, is_fused)

    def read(self, name: str) -> torch.Tensor:
        """Return a tensor by canonical name; projections of fused files are split.

        Raises  CheckpointError naming a tensor that is not finite, or its file.
        """
        if name in self.tensors:
            return _read_stored(self.tensors[name])
        prefix, _, part = name.rpartition("in_proj_")
        source, split = (QKVZ, split_qkvz) if part[0] in "qz" else (BA, split_ba)
        halves = split(self.read(prefix + source), self.config)
        return halves[0 if part[0] in "qb" else 1]


def check_tensors(checkpoint: Checkpoint) -> None:
    """Compare the stored tensors with those that the config implies.

    Raises  CheckpointError naming the first tensor that is missing, unknown, of another shape,
            or of a type that is no float.
    """
    config, stored = checkpoint.config, checkpoint.tensors
    expected = target_tensors(config, checkpoint.is_fused)
    _check_head(config, stored)
    _check_present(expected, stored)
    mtp = {name: entry for name, entry in stored.items() if name.startswith("mtp.")}
    _check_mtp(config, mtp)
    expected |= mtp_tensors(config) if mtp else {}
    for name, entry in stored.items():
        if name not in expected and not (name == HEAD and config.is_tied):
            message = "has no place in this model; check config.json"
            raise CheckpointError("TENSOR", f"tensor {entry.name} {message}")
        _check_entry(entry, expected.get(name, expected["embed_tokens.weight"]))


def _check_present(expected: Shapes, stored: dict[str, TensorEntry]) -> None:
    for name in expected:
        if name not in stored:
            count = sum(name in stored for name in expected)
            message = f"is missing; {count} of {len(expected)} are there; check the download"
            raise CheckpointError("TENSOR", f"tensor {name} {message}")


def _check_head(config: ModelConfig, stored: dict[str, TensorEntry]) -> None:
    if not config.is_tied and HEAD not in stored:
        message = f"tensor {HEAD} is missing, but config.json says the head is not tied"
        raise CheckpointError("TENSOR", f"{message}; set tie_word_embeddings or add it")


def _check_mtp(config: ModelConfig, found: dict[str, TensorEntry]) -> None:
    expected = mtp_tensors(config)
    if config.num_mtp_layers == 0:
        if found:
            message = "config.json says there is no MTP layer; set mtp_num_hidden_layers to 1"
            raise CheckpointError("TENSOR", f"tensor {next(iter(found))} is there, but {message}")
        return
    for name in expected:
        if name not in found:
            count = sum(name in found for name in expected)
            message = f"tensor {name} is missing: {count} of {len(expected)} MTP tensors are there"
            hint = "add them, or set mtp_num_hidden_layers to 0 to draft without MTP"
            raise CheckpointError("TENSOR", f"{message}; {hint}")


def _check_entry(entry: TensorEntry, shape: tuple[int, ...]) -> None:
    if entry.dtype not in _FLOATS:
        message = f"has dtype {entry.dtype}; supported are {', '.join(_FLOATS)}"
        raise CheckpointError("TENSOR", f"tensor {entry.name} {message}")
    if entry.shape != shape:
        message = f"has shape {list(entry.shape)}; config.json implies {list(shape)}"
        raise CheckpointError("TENSOR", f"tensor {entry.name} {message}")


def _read_stored(entry: TensorEntry) -> torch.Tensor:
    try:
        with safe_open(entry.path, framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(entry.name)
    except (SafetensorError, OSError) as error:
        raise file_error(entry.path, f"not readable: {error}") from None
    if not bool(torch.isfinite(tensor).all()):
        message = "holds NaN or infinity; the file is damaged, download it again"
        raise CheckpointError("TENSOR", f"tensor {entry.name} {message}")
    return tensor
