"""The shape of a Qwen3.5 / 3.6 / 3.8 dense hybrid, read from a checkpoint's config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from services.contract.errors import CheckpointError
from services.model.rope import Rope, read_rope

GDN: Final = "linear_attention"
ATTENTION: Final = "full_attention"
CONV_TAPS: Final = 4
MAX_CONFIG_BYTES: Final = 1 << 20
_TEXT_TYPES: Final = ("qwen3_5_text", "qwen3_next")
_CONTAINERS: Final = ("qwen3_5",)
_ACTIVATIONS: Final = {"silu": "silu", "swish": "silu", "sigmoid": "sigmoid"}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Hold every size and switch of one model.

    Args    layer_types: GDN or ATTENTION, one a layer. gate_activation: of the GDN output norm,
            "silu" or "sigmoid". is_tied: the head is the embedding. eos_ids: tokens that end a
            text. dtype: of the stored weights, as config.json names it.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[str, ...]
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    num_gdn_key_heads: int
    num_gdn_value_heads: int
    gdn_key_dim: int
    gdn_value_dim: int
    rope: Rope
    norm_eps: float
    gate_activation: str
    is_tied: bool
    num_mtp_layers: int
    context_length: int
    eos_ids: tuple[int, ...]
    dtype: str

    @property
    def num_layers(self) -> int:
        """Return the number of decoder layers."""
        return len(self.layer_types)

    @property
    def num_gdn_layers(self) -> int:
        """Return the number of Gated DeltaNet layers."""
        return self.layer_types.count(GDN)

    @property
    def num_attention_layers(self) -> int:
        """Return the number of full attention layers."""
        return self.layer_types.count(ATTENTION)

    @property
    def conv_channels(self) -> int:
        """Return C: channels of the convolution, q | k | v."""
        return 2 * self.num_gdn_key_heads * self.gdn_key_dim + self.value_width

    @property
    def value_width(self) -> int:
        """Return the channels of all GDN value heads."""
        return self.num_gdn_value_heads * self.gdn_value_dim

    @property
    def query_width(self) -> int:
        """Return the channels of all attention query heads, gates apart."""
        return self.num_query_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Return the channels of all key heads, equal to those of all value heads."""
        return self.num_kv_heads * self.head_dim


def load_model_config(folder: Path) -> ModelConfig:
    """Return the configuration of a checkpoint folder.

    Raises  CheckpointError naming the file and the key.
    """
    outer = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    extra = read_json(generation) if generation.is_file() else {}
    return config_from_json(outer, extra)


def read_json(path: Path, most: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Return the object of a JSON file of at most `most` bytes.

    Raises  CheckpointError naming the file.
    """
    try:
        if path.stat().st_size > most:
            raise CheckpointError("CONFIG", f"{path.name} is over {most} bytes")
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"{path.name} is not in {path.parent}; name a checkpoint folder"
        raise CheckpointError("CONFIG", message) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError("CONFIG", f"{path.name} is not readable JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError("CONFIG", f"{path.name} holds no JSON object")
    return value


def config_from_json(
    outer: Mapping[str, Any], generation: Mapping[str, Any] | None = None
) -> ModelConfig:
    """Return the checked configuration of a parsed config.json and generation_config.json."""
    text = _text_part(outer)
    _refuse_unsupported(outer, text)
    layer_types = _layer_types(text)
    head_dim = _size(text, "head_dim")
    config = ModelConfig(
        model_type=str(text["model_type"]),
        vocab_size=_size(text, "vocab_size"),
        hidden_size=_size(text, "hidden_size"),
        intermediate_size=_size(text, "intermediate_size"),
        layer_types=layer_types,
        num_query_heads=_size(text, "num_attention_heads"),
        num_kv_heads=_size(text, "num_key_value_heads"),
        head_dim=head_dim,
        num_gdn_key_heads=_size(text, "linear_num_key_heads"),
        num_gdn_value_heads=_size(text, "linear_num_value_heads"),
        gdn_key_dim=_size(text, "linear_key_head_dim"),
        gdn_value_dim=_size(text, "linear_value_head_dim"),
        rope=read_rope(text, head_dim),
        norm_eps=_number(text.get("rms_norm_eps", 1e-6), "rms_norm_eps"),
        gate_activation=_activation(text),
        is_tied=_flag(outer, text, "tie_word_embeddings"),
        num_mtp_layers=_count(text, "mtp_num_hidden_layers"),
        context_length=_size(text, "max_position_embeddings"),
        eos_ids=_eos_ids(outer, text, generation or {}),
        dtype=str(text.get("dtype") or text.get("torch_dtype") or outer.get("dtype") or "bfloat16"),
    )
    _check_groups(config)
    return config


def _text_part(outer: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = outer.get("model_type")
    if kind in _CONTAINERS:
        inner = outer.get("text_config")
        if not isinstance(inner, dict):
            raise _error("text_config", "missing in a multimodal config")
        kind = inner.get("model_type", "qwen3_5_text")
        outer = {**inner, "model_type": kind}
    if kind not in _TEXT_TYPES:
        known = ", ".join((*_TEXT_TYPES, *_CONTAINERS))
        raise _error("model_type", f"{kind!r} is not supported; supported are {known} (dense)")
    return outer


def _refuse_unsupported(outer: Mapping[str, Any], text: Mapping[str, Any]) -> None:
    if outer.get("quantization_config") or text.get("quantization_config"):
        raise _error("quantization_config", "quantized weights are not supported; use the bf16 one")
    if text.get("num_experts") or text.get("num_local_experts"):
        raise _error("num_experts", "mixture-of-experts models are not supported; use a dense one")
    required = {
        "attn_output_gate": (True, True),
        "attention_bias": (False, False),
        "hidden_act": ("silu", "silu"),
        "linear_conv_kernel_dim": (CONV_TAPS, CONV_TAPS),
        "mtp_use_dedicated_embeddings": (False, False),
    }
    for key, (default, wanted) in required.items():
        if text.get(key, default) != wanted:
            raise _error(key, f"{text[key]!r} is not supported; only {wanted!r} is")
    if text.get("mtp_num_hidden_layers", 0) not in (0, 1, None):
        raise _error("mtp_num_hidden_layers", "at most 1 MTP layer is supported")


def _layer_types(text: Mapping[str, Any]) -> tuple[str, ...]:
    count = _size(text, "num_hidden_layers")
    if text.get("layer_types") is None:
        every = _size({"full_attention_interval": 4, **text}, "full_attention_interval")
        return tuple(GDN if (index + 1) % every else ATTENTION for index in range(count))
    types = text["layer_types"]
    if not isinstance(types, list) or len(types) != count:
        raise _error("layer_types", f"must list num_hidden_layers = {count} entries")
    for kind in types:
        if kind not in (GDN, ATTENTION):
            raise _error("layer_types", f"{kind!r} is not supported; use {GDN} or {ATTENTION}")
    return tuple(types)


def _activation(text: Mapping[str, Any]) -> str:
    name = text.get("output_gate_type") or "silu"
    if name not in _ACTIVATIONS:
        raise _error("output_gate_type", f"{name!r}; supported are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _eos_ids(*sources: Mapping[str, Any]) -> tuple[int, ...]:
    found: set[int] = set()
    for source in sources:
        value = source.get("eos_token_id")
        values = value if isinstance(value, list) else [value]
        for token in values:
            if token is not None and (type(token) is not int or token < 0):
                raise _error("eos_token_id", f"{token!r} is no token id")
        found.update(token for token in values if token is not None)
    return tuple(sorted(found))


def _check_groups(config: ModelConfig) -> None:
    if config.num_query_heads % config.num_kv_heads:
        raise _error("num_key_value_heads", "does not divide num_attention_heads")
    if config.num_gdn_value_heads % config.num_gdn_key_heads:
        raise _error("linear_num_key_heads", "does not divide linear_num_value_heads")
    if config.eos_ids and config.eos_ids[-1] >= config.vocab_size:
        raise _error("eos_token_id", f"{config.eos_ids[-1]} is not below vocab_size")


def _size(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if type(value) is not int or not 1 <= value <= 1 << 24:
        raise _error(key, f"{value!r} is no size; need a whole number from 1 to 2^24")
    return value


def _count(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key) or 0
    if type(value) is not int:
        raise _error(key, f"{value!r} is no count")
    return value


def _flag(outer: Mapping[str, Any], text: Mapping[str, Any], key: str) -> bool:
    value = outer.get(key, text.get(key, False))
    if not isinstance(value, bool):
        raise _error(key, f"{value!r} is neither true nor false")
    return value


def _number(value: object, key: str) -> float:
    if type(value) not in (int, float) or not 0 < float(str(value)) < 1:
        raise _error(key, f"{value!r}; need a number between 0 and 1")
    return float(str(value))


def _error(key: str, message: str) -> CheckpointError:
    return CheckpointError("CONFIG", f"config.json: {message}", key)
