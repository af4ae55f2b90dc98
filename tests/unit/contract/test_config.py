"""The configuration and its loader."""

from pathlib import Path
from typing import Any

import pytest

from services.contract.config import EngineConfig, config_from_mapping, load_config
from services.contract.errors import ContractError
from services.contract.span import SlotRef


def test_loader_reads_a_file_and_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "engine.toml"
    path.write_text('model = "folder"\ncontext_length = 1000\nthreads = 1\n')
    config = load_config(path, {"threads": 3})
    assert config == EngineConfig("folder", context_length=1000, threads=3)
    assert config.pages_per_sequence == 16
    assert config.total_pages == 64


def test_loader_refuses_an_unknown_key_a_missing_model_and_bad_toml(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="treads: not a key"):
        config_from_mapping({"model": "folder", "treads": 1})
    with pytest.raises(ContractError, match="model: not set"):
        config_from_mapping({})
    path = tmp_path / "engine.toml"
    path.write_text("model = ")
    with pytest.raises(ContractError, match="not readable TOML"):
        load_config(path)
    with pytest.raises(ContractError, match="not readable TOML"):
        load_config(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", ""),
        ("mode", "exactly"),
        ("runtime", "local"),
        ("device", "tpu"),
        ("device", "cpu:0"),
        ("device", "cuda:x"),
        ("dtype", "float16"),
        ("threads", 0),
        ("max_sequences", 0),
        ("context_length", 31),
        ("num_pages", -1),
        ("prefill_grid", 100),
        ("prefill_grid", 0),
        ("suffix", 1),
        ("draft_vocab", -1),
    ],
)
def test_config_refuses_a_bad_value_by_name(field: str, value: Any) -> None:
    with pytest.raises(ContractError) as caught:
        config_from_mapping({"model": "folder", field: value})
    assert caught.value.field == field


def test_slot_reference_is_bounded() -> None:
    assert SlotRef(255, 0).slot == 255
    with pytest.raises(ContractError, match="slot"):
        SlotRef(256, 0)
    with pytest.raises(ContractError, match="generation"):
        SlotRef(0, -1)
