"""Other layouts that the same weights come in."""

from typing import Any

import torch


def container(config: dict[str, Any]) -> dict[str, Any]:
    """Return the multimodal config around a text config, without its own tie flag inside."""
    text = {key: value for key, value in config.items() if key != "architectures"}
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "tie_word_embeddings": text.pop("tie_word_embeddings"),
        "text_config": text,
        "vision_config": {"depth": 1, "hidden_size": 16, "num_heads": 2, "out_hidden_size": 64},
        "dtype": "float32",
    }


def fuse_gdn(
    config: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return a dense qwen3_next config and the tensors with projections grouped by key head."""
    heads = config["linear_num_key_heads"]
    keys = heads * config["linear_key_head_dim"]
    fused = {name: tensor for name, tensor in tensors.items() if "in_proj" not in name}
    for name in [name for name in tensors if name.endswith("in_proj_qkv.weight")]:
        prefix = name.removesuffix("qkv.weight")
        qkv, z, b, a = (tensors[f"{prefix}{part}.weight"] for part in ("qkv", "z", "b", "a"))
        query, key, value = qkv.split([keys, keys, qkv.shape[0] - 2 * keys])
        fused[prefix + "qkvz.weight"] = _by_head(heads, query, key, value, z)
        fused[prefix + "ba.weight"] = _by_head(heads, b, a)
    changes = {
        "model_type": "qwen3_next",
        "architectures": ["Qwen3NextForCausalLM"],
        "num_experts": 0,
    }
    return {**config, **changes}, fused


def _by_head(heads: int, *parts: torch.Tensor) -> torch.Tensor:
    grouped = [part.reshape(heads, -1, part.shape[1]) for part in parts]
    return torch.cat(grouped, 1).reshape(-1, parts[0].shape[1])
