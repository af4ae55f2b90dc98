"""Every way tensors may not be what the config says is refused, naming the tensor."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from services.contract.errors import CheckpointError
from services.model.checkpoint import Checkpoint
from services.model.weights import load_mtp, load_target
from tests.oracle.models import Tensors, random_tensors, stored_names, tiny_config, write_folder


@pytest.fixture(scope="module")
def tensors() -> Tensors:
    return stored_names(random_tensors(tiny_config()))


def open_and_load(folder: Path) -> None:
    """Do all that happens before serving."""
    checkpoint = Checkpoint.open(folder)
    load_target(checkpoint, torch.float32)
    load_mtp(checkpoint, torch.float32)


def rename(old: str, new: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({new: tensors.pop(old)})


def drop(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.__delitem__(name)


def put(name: str, tensor: torch.Tensor) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: tensor})


def drop_mtp(tensors: Tensors) -> None:
    for name in [name for name in tensors if name.startswith("mtp.")]:
        del tensors[name]


def poison(name: str, value: float) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name] = tensors[name].clone()
        tensors[name].view(-1)[7] = value

    return change


def pack_mtp(tensors: Tensors) -> None:
    packed = torch.zeros(64, 64, dtype=torch.uint8)
    tensors["mtp.fc.weight"] = packed
    tensors["mtp.fc.weight_scale"] = torch.ones(64, 8)


FC, UP, HEAD = "mtp.fc.weight", "model.layers.1.mlp.up_proj.weight", "lm_head.weight"
TENSOR_LIES: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "one mtp tensor missing": (drop(FC), f"{FC} is missing: 14 of 15"),
    "one mtp tensor renamed": (rename(FC, "mtp.fd.weight"), f"{FC} is missing: 14 of 15"),
    "an mtp tensor too many": (put("mtp.layers.1.x", torch.ones(3)), "mtp.layers.1.x has no place"),
    "no mtp at all": (drop_mtp, "mtp.fc.weight is missing: 0 of 15"),
    "mtp packed": (pack_mtp, "mtp.fc.weight_scale belongs to quantized weights"),
    "packed without scales": (
        put(FC, torch.zeros(64, 128, dtype=torch.uint8)),
        f"{FC} has dtype U8",
    ),
    "fp8 weight": (put(UP, torch.zeros(96, 64).to(torch.float8_e4m3fn)), f"{UP} has dtype F8_E4M3"),
    "integer weight": (put(UP, torch.zeros(96, 64, dtype=torch.int32)), f"{UP} has dtype I32"),
    "target tensor missing": (drop(UP), "layers.1.mlp.up_proj.weight is missing; 55 of 56"),
    "wrong shape": (put(UP, torch.zeros(64, 96)), r"\[64, 96\]; config.json implies \[96, 64\]"),
    "unknown layer": (put("model.layers.9.x", torch.ones(3)), "model.layers.9.x has no place"),
    "stored twice": (
        put("model.language_model.norm.weight", torch.ones(64)),
        "norm.weight is stored",
    ),
    "untied, head missing": (drop(HEAD), f"{HEAD} is missing, but config.json says"),
    "NaN": (poison(UP, float("nan")), f"{UP} holds NaN"),
    "infinity in mtp": (poison(FC, float("inf")), f"{FC} holds NaN or infinity"),
}


@pytest.mark.parametrize("name", TENSOR_LIES)
def test_a_lie_about_tensors_is_refused(tmp_path: Path, tensors: Tensors, name: str) -> None:
    tell, message = TENSOR_LIES[name]
    changed = dict(tensors)
    tell(changed)
    folder = write_folder(tmp_path / "model", tiny_config(), changed)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_and_load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("differs", [False, True])
def test_a_tied_head_may_be_stored_only_if_it_is_the_embedding(
    tmp_path: Path, tensors: Tensors, differs: bool
) -> None:
    embedding = tensors["model.embed_tokens.weight"]
    stored = {**tensors, HEAD: embedding + 1 if differs else embedding.clone()}
    folder = write_folder(tmp_path / "model", tiny_config(tie_word_embeddings=True), stored)
    if not differs:
        return open_and_load(folder)
    with pytest.raises(CheckpointError, match=r"lm_head.weight differs from embed_tokens.weight"):
        open_and_load(folder)


def test_mtp_tensors_without_an_mtp_layer_are_refused(tmp_path: Path, tensors: Tensors) -> None:
    folder = write_folder(tmp_path / "model", tiny_config(mtp_num_hidden_layers=0), tensors)
    with pytest.raises(CheckpointError, match="says there is no MTP layer"):
        open_and_load(folder)
    without = {name: t for name, t in tensors.items() if not name.startswith("mtp.")}
    open_and_load(write_folder(folder, tiny_config(mtp_num_hidden_layers=0), without))


def test_visual_tensors_are_skipped(tmp_path: Path, tensors: Tensors) -> None:
    stored = {**tensors, "model.visual.blocks.0.weight": torch.full((3,), torch.nan)}
    open_and_load(write_folder(tmp_path / "model", tiny_config(), stored))


def test_quantized_folder_is_refused(tmp_path: Path, tensors: Tensors) -> None:
    folder = write_folder(tmp_path / "model", tiny_config(), tensors)
    (folder / "hf_quant_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="quantized weights are not supported"):
        open_and_load(folder)
