"""Canonical tensor names and shapes of a model, and how checkpoint files spell them."""

from typing import Final

from services.contract.errors import CheckpointError
from services.model.config import CONV_TAPS, GDN, ModelConfig

EMBEDDING: Final = "embed_tokens.weight"
FINAL_NORM: Final = "norm.weight"
HEAD: Final = "lm_head.weight"
MTP_LAYER: Final = "mtp.layers.0."
_PREFIXES: Final = ("model.language_model.", "language_model.model.", "model.")
_SKIPPED: Final = ("model.visual.", "visual.")
_QUANTIZED: Final = (
    *("weight_scale", "weight_scale_2", "weight_scale_inv", "weight_packed", "input_scale"),
    *("weight_global_scale", "input_global_scale", "k_scale", "v_scale", "qweight", "qzeros"),
    *("scales", "weight_shape", "g_idx", "weight_zero_point", "input_activations_scale"),
)
_IGNORED_ENDS: Final = ("rotary_emb.inv_freq",)
Shapes = dict[str, tuple[int, ...]]


def canonical(name: str) -> str | None:
    """Return a stored name without its container prefix; None for what text does not read."""
    if name.startswith(_SKIPPED) or name.endswith(_IGNORED_ENDS):
        return None
    if name.startswith(("mtp.", HEAD)):
        return name
    if name.startswith("language_model.lm_head."):
        return name.removeprefix("language_model.")
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def refuse_quantized(name: str) -> None:
    """Raise CheckpointError if a tensor's name is that of a quantized weight or its scale."""
    if name.rpartition(".")[2] in _QUANTIZED:
        message = "belongs to quantized weights, which are not supported; use the bf16 checkpoint"
        raise CheckpointError("QUANTIZED", f"tensor {name} {message}")


def target_tensors(config: ModelConfig, is_fused: bool = False) -> Shapes:
    """Return name and shape of every tensor of the target model, the tied head left out.

    Args    is_fused: GDN projections lie grouped by key head, as in qwen3_next files.
    """
    shapes: Shapes = {EMBEDDING: (config.vocab_size, config.hidden_size)}
    for index, kind in enumerate(config.layer_types):
        prefix = f"layers.{index}."
        if kind == GDN:
            shapes |= _gdn(config, prefix + "linear_attn.", is_fused)
        else:
            shapes |= _attention(config, prefix + "self_attn.")
        shapes |= _mlp(config, prefix)
    shapes[FINAL_NORM] = (config.hidden_size,)
    if not config.is_tied:
        shapes[HEAD] = (config.vocab_size, config.hidden_size)
    return shapes


def mtp_tensors(config: ModelConfig) -> Shapes:
    """Return name and shape of every tensor of the MTP block, as if the model had one."""
    hidden = config.hidden_size
    return {
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
        "mtp.norm.weight": (hidden,),
        **_attention(config, MTP_LAYER + "self_attn."),
        **_mlp(config, MTP_LAYER),
    }


def _gdn(config: ModelConfig, prefix: str, is_fused: bool) -> Shapes:
    hidden, heads, width = config.hidden_size, config.num_gdn_value_heads, config.value_width
    channels = config.conv_channels
    split: Shapes = {
        "in_proj_qkv.weight": (channels, hidden),
        "in_proj_z.weight": (width, hidden),
        "in_proj_b.weight": (heads, hidden),
        "in_proj_a.weight": (heads, hidden),
    }
    fused: Shapes = {
        "in_proj_qkvz.weight": (channels + width, hidden),
        "in_proj_ba.weight": (2 * heads, hidden),
    }
    rest: Shapes = {
        "conv1d.weight": (channels, 1, CONV_TAPS),
        "A_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (config.gdn_value_dim,),
        "out_proj.weight": (hidden, width),
    }
    projections = fused if is_fused else split
    return {prefix + name: shape for name, shape in (projections | rest).items()}


def _attention(config: ModelConfig, prefix: str) -> Shapes:
    hidden = config.hidden_size
    return {
        prefix + "q_proj.weight": (2 * config.query_width, hidden),
        prefix + "k_proj.weight": (config.kv_width, hidden),
        prefix + "v_proj.weight": (config.kv_width, hidden),
        prefix + "o_proj.weight": (hidden, config.query_width),
        prefix + "q_norm.weight": (config.head_dim,),
        prefix + "k_norm.weight": (config.head_dim,),
    }


def _mlp(config: ModelConfig, prefix: str) -> Shapes:
    hidden, inner = config.hidden_size, config.intermediate_size
    return {
        prefix + "input_layernorm.weight": (hidden,),
        prefix + "post_attention_layernorm.weight": (hidden,),
        prefix + "mlp.gate_proj.weight": (inner, hidden),
        prefix + "mlp.up_proj.weight": (inner, hidden),
        prefix + "mlp.down_proj.weight": (hidden, inner),
    }
