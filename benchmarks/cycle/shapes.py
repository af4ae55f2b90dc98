"""Stage groups to measure: a checkpoint's, or random weights at the 27B shape."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from services.committer.stage import CommitterStage
from services.contract.config import EngineConfig
from services.drafter.build import build_drafter
from services.model.config import ModelConfig, config_from_json
from services.model.flat import FlatWeights, empty_block
from services.model.parts import mtp_parts, target_parts
from services.model.weights import MtpWeights, TargetWeights, view_mtp, view_target
from services.runtime.buffers import make_arenas
from services.runtime.local import LocalGroup
from services.verifier.stage import VerifierStage

EPOCH = 1
QWEN_27B = {
    "model_type": "qwen3_5_text",
    "dtype": "bfloat16",
    "vocab_size": 248320,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attn_output_gate": True,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "full_attention_interval": 4,
    "mtp_num_hidden_layers": 1,
    "mamba_ssm_dtype": "float32",
    "eos_token_id": 248044,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}


@dataclass
class RandomGroup:
    """A warmed group of random weights, its slots' state words, and the last generation given."""

    group: LocalGroup
    config: EngineConfig
    words: torch.Tensor
    weights_gb: float
    generation: int = 0


def random_group(config: EngineConfig, shape: dict[str, object] | None = None) -> RandomGroup:
    """Return a warmed group of random bf16 weights at the 27B shape."""
    model = config_from_json(shape or QWEN_27B)
    dtype, device = torch.bfloat16, config.device
    blocks = []
    for parts in (target_parts(model, dtype), mtp_parts(model, dtype)):
        block = empty_block(parts, device)
        randomise(FlatWeights.over(parts, block))
        blocks.append(block)
    target, mtp = view_target(model, dtype, blocks[0]), view_mtp(model, dtype, blocks[1])
    # A decode step reads every weight but the embedding, of which it reads a few rows.
    size = blocks[0].nbytes - target.embedding.nbytes
    return _group(config, model, target, mtp, size)


def _group(
    config: EngineConfig, model: ModelConfig, target: TargetWeights, mtp: MtpWeights, size: int
) -> RandomGroup:
    arenas, lent = make_arenas(model, config), (target.embedding, target.head)
    stages = (
        build_drafter(config, model, mtp, lent, arenas, EPOCH),
        VerifierStage(model, target, arenas, config, EPOCH),
        CommitterStage(target, arenas, config, EPOCH),
    )
    group = LocalGroup(model, stages, EPOCH)
    group.warmup()
    return RandomGroup(group, config, arenas.verifier["words"], size / 1e9)


def randomise(weights: FlatWeights) -> None:
    """Fill matrices with N(0, 1 / fan_in), vectors with small normals around 0 (gates around 1)."""
    for name, view in weights.views.items():
        if view.dim() == 2 and view.dtype == torch.bfloat16:
            view.normal_(0, view.shape[1] ** -0.5)
        else:
            view.normal_(1.0 if name.endswith("gated_norm") else 0.0, 0.1)
