"""A tiny random checkpoint whose tokens 0..255 are the bytes of a text, and one server of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from services.contract.config import EngineConfig
from services.gateway.engine import Engine
from services.gateway.text import _BYTE_OF_CHAR
from tests.oracle.models import random_tensors, stored_names, tiny_config, write_folder

VOCAB = 320
EOS = 319
CONTEXT = 1024


def write_byte_model(folder: Path) -> Path:
    """Write the checkpoint with its tokenizer; ids 256..318 stand for no text."""
    config = tiny_config(vocab_size=VOCAB, eos_token_id=EOS)
    write_folder(folder, config, stored_names(random_tensors(config, seed=11)))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    return folder


def small_engine(folder: Path, **changes: Any) -> Engine:
    """Return an engine of the tiny checkpoint."""
    values = {"threads": 1, "context_length": CONTEXT, "max_sequences": 2, **changes}
    return Engine.open(EngineConfig(model=str(folder), **values))


def _tokenizer() -> dict[str, Any]:
    end = {"id": EOS, "content": "<|end|>", "special": True, "normalized": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": dict(_BYTE_OF_CHAR),
        "merges": [],
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**end, **flags}],
        "normalizer": None,
        "pre_tokenizer": {**level, "use_regex": False},
        "post_processor": None,
        "decoder": {**level, "use_regex": False},
        "model": model,
    }
