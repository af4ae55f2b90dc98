"""Which tensors each owner's arena holds, for one model and one engine configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from services.contract.config import EngineConfig
from services.contract.limits import (
    MAX_LOGPROBS,
    MAX_PATH,
    MAX_ROWS,
    MAX_SLAB,
    PAGE,
    TABLE_WORDS,
)
from services.model.config import ModelConfig
from services.runtime.arena import Arena, BufferSpec

STATE_WORDS: Final = 16
PATH_WORDS: Final = 64
SAMPLING_WORDS: Final = 32

I32: Final = torch.int32
F32: Final = torch.float32
U8: Final = torch.uint8


@dataclass(frozen=True, slots=True)
class Arenas:
    """The three arenas as one stage sees them: its own, and views of the others'."""

    verifier: Arena
    drafter: Arena
    committer: Arena


def model_dtype(config: EngineConfig) -> torch.dtype:
    """Return the dtype of weights and activations in memory; on a CPU always float32."""
    if config.device == "cpu" or config.dtype == "float32":
        return torch.float32
    return torch.bfloat16


def has_narrow_products(config: EngineConfig) -> bool:
    """Say whether a CPU's matrix products round their operands to bfloat16."""
    return config.device == "cpu" and config.dtype == "bfloat16"


def verifier_specs(model: ModelConfig, config: EngineConfig) -> list[BufferSpec]:
    """Return the verifier's tensors: target state, operand rings, results, sampling rows."""
    specs = [*_state(model, config), *_rings(model, config), *_sampling(model, config)]
    slots, vocab = config.max_sequences, model.vocab_size
    return [
        *specs,
        BufferSpec("prefill_hidden", (config.prefill_grid, model.hidden_size), model_dtype(config)),
        BufferSpec("logits", (min(slots, MAX_SLAB), MAX_ROWS, vocab), F32),
        BufferSpec("path", (slots, PATH_WORDS), I32),
        BufferSpec("logprob_ids", (slots, MAX_PATH, 1 + MAX_LOGPROBS), I32),
        BufferSpec("logprob_values", (slots, MAX_PATH, 1 + MAX_LOGPROBS), F32),
    ]


def drafter_specs(model: ModelConfig, config: EngineConfig) -> list[BufferSpec]:
    """Return the drafter's tensors: its key-value pages and the tree tables."""
    kv = (1, config.total_pages, 2, model.num_kv_heads, PAGE, model.head_dim)
    return [
        BufferSpec("mtp_kv", kv, model_dtype(config)),
        BufferSpec("tree_tables", (config.max_sequences, TABLE_WORDS), I32),
    ]


def committer_specs(config: EngineConfig) -> list[BufferSpec]:
    """Return the committer's tensors: the cut path and the next root."""
    slots = config.max_sequences
    return [
        BufferSpec("accepted", (slots, PATH_WORDS), I32),
        BufferSpec("next_root", (slots, 2), I32),
    ]


def make_arenas(model: ModelConfig, config: EngineConfig) -> Arenas:
    """Allocate all three arenas in this process."""
    device = config.device
    return Arenas(
        Arena("verifier", verifier_specs(model, config), device),
        Arena("drafter", drafter_specs(model, config), device),
        Arena("committer", committer_specs(config), device),
    )


def _state(model: ModelConfig, config: EngineConfig) -> list[BufferSpec]:
    slots, dtype = config.max_sequences, model_dtype(config)
    tile = (model.num_gdn_value_heads, model.gdn_value_dim, model.gdn_key_dim)
    pages = (config.total_pages, 2, model.num_kv_heads, PAGE, model.head_dim)
    table = (slots, config.pages_per_sequence)
    return [
        BufferSpec("recurrent", (slots, 2, model.num_gdn_layers, *tile), F32),
        BufferSpec("conv", (slots, 2, model.num_gdn_layers, 3, model.conv_channels), dtype),
        BufferSpec("kv", (model.num_attention_layers, *pages), dtype),
        BufferSpec("words", (slots, STATE_WORDS), I32),
        BufferSpec("page_table", table, I32),
    ]


def _rings(model: ModelConfig, config: EngineConfig) -> list[BufferSpec]:
    slots, dtype = config.max_sequences, model_dtype(config)
    layers, channels = model.num_gdn_layers, model.conv_channels
    keys = (model.num_attention_layers, 2, model.num_kv_heads, MAX_ROWS, model.head_dim)
    return [
        BufferSpec("raw_ring", (slots, layers, MAX_ROWS, channels), dtype),
        BufferSpec("mixed_ring", (slots, layers, MAX_ROWS, channels), dtype),
        BufferSpec("ab_ring", (slots, layers, MAX_ROWS, 2, model.num_gdn_value_heads), dtype),
        BufferSpec("kv_ring", (slots, *keys), dtype),
        BufferSpec("hidden_ring", (slots, 2, MAX_ROWS, model.hidden_size), dtype),
    ]


def _sampling(model: ModelConfig, config: EngineConfig) -> list[BufferSpec]:
    slots, vocab = config.max_sequences, model.vocab_size
    return [
        BufferSpec("prompt_mask", (slots, vocab), U8),
        BufferSpec("output_counts", (slots, vocab), I32),
        BufferSpec("logit_bias", (slots, vocab), F32),
        BufferSpec("sampling", (slots, SAMPLING_WORDS), I32),
    ]
