"""Tiny random checkpoints whose numbers can tell right from wrong.

Weights have std fan_in^-0.5 and every norm, gate and decay is random: with a library's own
initialisation (norms 0 or 1) a missing `1 +` would not show.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]


def tiny_config(**changes: Any) -> dict[str, Any]:
    """Return a text config.json of a model of four layers, with changes on top."""
    config: dict[str, Any] = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "dtype": "float32",
        "vocab_size": 160,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "attn_output_gate": True,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "eos_token_id": 159,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2],
            "mrope_interleaved": True,
        },
    }
    return {**config, **changes}


def tensor_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor, by plain name."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (vocab, hidden),
        "norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for index, kind in enumerate(config["layer_types"]):
        mixer = _gdn if kind == "linear_attention" else _attention
        shapes |= _block(config, f"layers.{index}.", mixer(config))
    if config["mtp_num_hidden_layers"]:
        shapes |= _block(config, "mtp.layers.0.", _attention(config))
        shapes["mtp.fc.weight"] = (hidden, 2 * hidden)
        for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
            shapes[f"mtp.{name}.weight"] = (hidden,)
    return shapes


def random_tensors(config: dict[str, Any], seed: int = 0) -> Tensors:
    """Return random fp32 weights for a config, by plain name."""
    generator = torch.Generator().manual_seed(seed)
    return {name: _random(name, shape, generator) for name, shape in tensor_shapes(config).items()}


def stored_names(tensors: Tensors, prefix: str = "model.") -> Tensors:
    """Return the tensors under the names a checkpoint file uses."""
    top = ("lm_head.", "mtp.")
    return {name if name.startswith(top) else prefix + name: t for name, t in tensors.items()}


def write_folder(folder: Path, config: dict[str, Any], stored: Tensors, shards: int = 1) -> Path:
    """Write a checkpoint folder of one file, or of shards with an index; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    stored = {name: tensor.contiguous() for name, tensor in stored.items()}
    if shards == 1:
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    names = sorted(stored)
    placed: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: stored[name] for name in names[shard::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    noise = torch.randn(shape, generator=generator)
    if name.endswith("A_log"):
        return torch.rand(shape, generator=generator) * 3 - 2
    if name.endswith("dt_bias"):
        return noise
    if name.endswith("linear_attn.norm.weight"):
        return 1 + 0.3 * noise
    if len(shape) == 1:
        return 0.3 * noise
    return noise * (1.0 if name.startswith("embed") else shape[-1] ** -0.5)


def _block(
    config: dict[str, Any], prefix: str, mixer: dict[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {
        **mixer,
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    return {prefix + name: shape for name, shape in shapes.items()}


def _gdn(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    values = heads * config["linear_value_head_dim"]
    channels = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + values
    shapes: dict[str, tuple[int, ...]] = {
        "in_proj_qkv.weight": (channels, hidden),
        "in_proj_z.weight": (values, hidden),
        "in_proj_b.weight": (heads, hidden),
        "in_proj_a.weight": (heads, hidden),
        "conv1d.weight": (channels, 1, 4),
        "A_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (config["linear_value_head_dim"],),
        "out_proj.weight": (hidden, values),
    }
    return {"linear_attn." + name: shape for name, shape in shapes.items()}


def _attention(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, dim = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes: dict[str, tuple[int, ...]] = {
        "q_proj.weight": (2 * queries, hidden),
        "k_proj.weight": (keys, hidden),
        "v_proj.weight": (keys, hidden),
        "o_proj.weight": (hidden, queries),
        "q_norm.weight": (dim,),
        "k_norm.weight": (dim,),
    }
    return {"self_attn." + name: shape for name, shape in shapes.items()}
