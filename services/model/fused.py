"""Undo the qwen3_next grouping of GDN projections by key head."""

import torch

from services.model.config import ModelConfig

QKVZ = "in_proj_qkvz.weight"
BA = "in_proj_ba.weight"


def split_qkvz(weight: torch.Tensor, config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (in_proj_qkv, in_proj_z) of a fused weight.

    Shapes  weight [2 * Hk * dk + 2 * Hv * dv, d]; rows of each key head: q | k | its v | its z.
    """
    heads, key_dim = config.num_gdn_key_heads, config.gdn_key_dim
    group = config.value_width // heads
    parts = weight.view(heads, 2 * key_dim + 2 * group, -1)
    query, key, value, gate = parts.split((key_dim, key_dim, group, group), dim=1)
    rows = [part.reshape(-1, weight.shape[1]) for part in (query, key, value, gate)]
    return torch.cat(rows[:3]), rows[3]


def split_ba(weight: torch.Tensor, config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (in_proj_b, in_proj_a) of a fused weight [2 * Hv, d]; per key head: b | a."""
    group = config.num_gdn_value_heads // config.num_gdn_key_heads
    parts = weight.view(config.num_gdn_key_heads, 2 * group, -1)
    beta, decay = parts.split(group, dim=1)
    return beta.reshape(-1, weight.shape[1]), decay.reshape(-1, weight.shape[1])
