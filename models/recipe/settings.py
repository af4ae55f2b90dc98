"""The model that is trained: its config.json, its tensors, their first values."""

import math
from typing import Any, Final

import torch

Params = dict[str, torch.Tensor]
Config = dict[str, Any]

MTP_DEPTH: Final = 5
NORM_EPS: Final = 1e-6

TINY: Final[Config] = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "dtype": "bfloat16",
    "vocab_size": 8192,
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 16384,
    "initializer_range": 0.02,
    "rms_norm_eps": NORM_EPS,
    "use_cache": True,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_output_gate": True,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "full_attention_interval": 4,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "mamba_ssm_dtype": "float32",
    "eos_token_id": 8177,
    "pad_token_id": 8177,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
}
TOY: Final[Config] = {
    **TINY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "num_hidden_layers": 4,
    "layer_types": TINY["layer_types"][:4],
    "rope_parameters": {**TINY["rope_parameters"], "mrope_section": [2, 1, 1]},
}


def tensor_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor, as transformers and vLLM name them."""
    hidden = config["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden)
    }
    for index, kind in enumerate(config["layer_types"]):
        prefix = f"model.layers.{index}."
        mixer = _gdn if kind == "linear_attention" else _attention
        shapes |= mixer(config, prefix) | _mlp(config, prefix)
    shapes["model.norm.weight"] = (hidden,)
    shapes["mtp.pre_fc_norm_embedding.weight"] = (hidden,)
    shapes["mtp.pre_fc_norm_hidden.weight"] = (hidden,)
    shapes["mtp.fc.weight"] = (hidden, 2 * hidden)
    shapes |= _attention(config, "mtp.layers.0.") | _mlp(config, "mtp.layers.0.")
    shapes["mtp.norm.weight"] = (hidden,)
    return shapes


def first_values(config: Config, seed: int, device: torch.device | str) -> Params:
    """Return fp32 master weights to start from."""
    generator = torch.Generator().manual_seed(seed)
    depth = config["num_hidden_layers"]
    return {
        name: _first_value(name, shape, depth, generator).float().to(device)
        for name, shape in tensor_shapes(config).items()
    }


def compute_copies(masters: Params, dtype: torch.dtype) -> Params:
    """Return detached copies for the forward: matrices in `dtype`, vectors in fp32."""
    return {
        name: value.detach().to(torch.float32 if value.dim() == 1 else dtype)
        for name, value in masters.items()
    }


def _first_value(
    name: str, shape: tuple[int, ...], depth: int, generator: torch.Generator
) -> torch.Tensor:
    if name.endswith("A_log"):
        return torch.empty(shape).uniform_(1, 16, generator=generator).log()
    if name.endswith("dt_bias"):
        low, high = math.log(0.001), math.log(0.1)
        step = torch.exp(torch.rand(shape, generator=generator) * (high - low) + low)
        return step + torch.log(-torch.expm1(-step))
    if name.endswith("linear_attn.norm.weight"):
        return torch.ones(shape)
    if len(shape) == 1:
        return torch.zeros(shape)
    if name.endswith("conv1d.weight"):
        return torch.empty(shape).uniform_(-0.5, 0.5, generator=generator)
    noise = torch.randn(shape, generator=generator)
    if name.endswith("embed_tokens.weight"):
        return noise * 0.02
    scale = shape[-1] ** -0.5 * 0.7
    if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
        scale /= math.sqrt(2 * depth)
    return noise * scale


def _mlp(config: Config, prefix: str) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    return {
        prefix + "mlp.gate_proj.weight": (inner, hidden),
        prefix + "mlp.up_proj.weight": (inner, hidden),
        prefix + "mlp.down_proj.weight": (hidden, inner),
        prefix + "input_layernorm.weight": (hidden,),
        prefix + "post_attention_layernorm.weight": (hidden,),
    }


def _attention(config: Config, prefix: str) -> dict[str, tuple[int, ...]]:
    hidden, dim = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    p = prefix + "self_attn."
    return {
        p + "q_proj.weight": (queries * 2, hidden),
        p + "k_proj.weight": (keys, hidden),
        p + "v_proj.weight": (keys, hidden),
        p + "o_proj.weight": (hidden, queries),
        p + "q_norm.weight": (dim,),
        p + "k_norm.weight": (dim,),
    }


def _gdn(config: Config, prefix: str) -> dict[str, tuple[int, ...]]:
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    p, taps = prefix + "linear_attn.", config["linear_conv_kernel_dim"]
    return {
        p + "in_proj_qkv.weight": (2 * keys + values, hidden),
        p + "in_proj_z.weight": (values, hidden),
        p + "in_proj_b.weight": (heads, hidden),
        p + "in_proj_a.weight": (heads, hidden),
        p + "conv1d.weight": (2 * keys + values, 1, taps),
        p + "A_log": (heads,),
        p + "dt_bias": (heads,),
        p + "norm.weight": (config["linear_value_head_dim"],),
        p + "out_proj.weight": (hidden, values),
    }
