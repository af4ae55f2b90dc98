"""config.json in every spelling that files use, and what is refused by name."""

from pathlib import Path
from typing import Any

import pytest
import torch

from services.contract.errors import CheckpointError
from services.model.config import ATTENTION, GDN, config_from_json, load_model_config
from tests.oracle.models import tiny_config
from tests.oracle.variants import container

EMBEDDED = Path(__file__).parents[3] / "models" / "lumo-tiny"


def test_container_and_text_configs_read_alike() -> None:
    text = tiny_config(tie_word_embeddings=True)
    assert config_from_json(container(text)) == config_from_json(text)


def test_outer_tie_flag_wins() -> None:
    outer = container(tiny_config())
    outer["text_config"]["tie_word_embeddings"] = True
    assert not config_from_json(outer).is_tied


def test_layer_types_are_derived_from_the_interval() -> None:
    text = tiny_config(layer_types=None, num_hidden_layers=6, full_attention_interval=3)
    wanted = (GDN, GDN, ATTENTION) * 2
    assert config_from_json(text).layer_types == wanted
    default = tiny_config(num_hidden_layers=4)
    del default["layer_types"]
    assert config_from_json(default).layer_types == (GDN, GDN, GDN, ATTENTION)


ROPES: dict[str, dict[str, Any]] = {
    "nested": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "type": {"rope_parameters": {"type": "default", "rope_theta": 5e5}},
    "flat": {"rope_parameters": None, "rope_theta": 5e5, "partial_rotary_factor": 0.25},
    "mixed": {"rope_parameters": {"rope_theta": 5e5}, "partial_rotary_factor": 0.25},
    "scaling": {"rope_parameters": None, "rope_scaling": {"type": "default"}, "rope_theta": 5e5},
}


@pytest.mark.parametrize("spelling", ROPES)
def test_rope_spellings_read_alike(spelling: str) -> None:
    rope = config_from_json(tiny_config(**ROPES[spelling])).rope
    assert (rope.theta, rope.dim) == (5e5, 16)
    wanted = 5e5 ** -(torch.arange(8, dtype=torch.float64) / 8)
    torch.testing.assert_close(rope.inverse_frequencies().double(), wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("spelled", "read"), [(None, "silu"), ("swish", "silu"), ("silu", "silu"), ("sigmoid",) * 2]
)
def test_output_gate_type_is_honoured(spelled: str | None, read: str) -> None:
    assert config_from_json(tiny_config(output_gate_type=spelled)).gate_activation == read


REFUSED: dict[str, dict[str, Any]] = {
    "attn_output_gate": {"attn_output_gate": False},
    "attention_bias": {"attention_bias": True},
    "hidden_act": {"hidden_act": "gelu"},
    "rope_parameters": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
    "rope_theta": {"rope_parameters": {"rope_theta": "big"}},
    "partial_rotary_factor": {"rope_parameters": {"partial_rotary_factor": 0.01}},
    "output_gate_type": {"output_gate_type": "tanh"},
    "quantization_config": {"quantization_config": {"quant_method": "fp8"}},
    "num_experts": {"num_experts": 8},
    "model_type": {"model_type": "qwen4_exp"},
    "layer_types": {"layer_types": ["linear_attention"] * 3},
    "linear_conv_kernel_dim": {"linear_conv_kernel_dim": 3},
    "mtp_num_hidden_layers": {"mtp_num_hidden_layers": 2},
    "mtp_use_dedicated_embeddings": {"mtp_use_dedicated_embeddings": True},
    "num_key_value_heads": {"num_key_value_heads": 3},
    "linear_num_key_heads": {"linear_num_key_heads": 3},
    "hidden_size": {"hidden_size": -1},
    "head_dim": {"head_dim": True},
    "rms_norm_eps": {"rms_norm_eps": 2},
    "tie_word_embeddings": {"tie_word_embeddings": "no"},
    "eos_token_id": {"eos_token_id": 160},
}


@pytest.mark.parametrize("key", REFUSED)
def test_unsupported_value_is_refused_by_name(key: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        config_from_json(tiny_config(**REFUSED[key]))
    assert caught.value.field == key


@pytest.mark.parametrize("kind", ["qwen3_5_moe", "qwen3_5_moe_text", "llama", None, 7])
def test_other_architectures_are_refused_by_name(kind: object) -> None:
    with pytest.raises(CheckpointError, match=f"{kind!r} is not supported"):
        config_from_json(tiny_config(model_type=kind))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN', "\udcff", "[" * 100_000])
def test_broken_config_file_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_model_config(tmp_path)


def test_missing_folder_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="name a checkpoint folder"):
        load_model_config(tmp_path / "nowhere")


def test_embedded_checkpoint_stops_on_both_end_tokens() -> None:
    assert load_model_config(EMBEDDED).eos_ids == (8177, 8179)
