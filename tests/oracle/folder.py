"""Read a checkpoint folder for the oracle: plain names, no checks."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

PREFIXES = ("model.language_model.", "language_model.model.", "model.")


def read_config(folder: Path) -> dict[str, Any]:
    """Return the text part of config.json, with the outer tie rule."""
    outer: dict[str, Any] = json.loads((folder / "config.json").read_text())
    text = dict(outer.get("text_config", outer))
    if "tie_word_embeddings" in outer:
        text["tie_word_embeddings"] = outer["tie_word_embeddings"]
    return text


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return every text and MTP tensor by its name without a container prefix."""
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(path).items():
            tensors[_plain(name)] = tensor
    return tensors


def _plain(name: str) -> str:
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name.removeprefix("language_model.")
