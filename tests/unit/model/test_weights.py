"""Weights land fused, aligned and complete; the folder is described from headers alone."""

from pathlib import Path

import pytest
import torch

from services.model.checkpoint import Checkpoint
from services.model.flat import block_bytes, empty_block
from services.model.inspect import describe
from services.model.parts import mtp_parts, target_parts
from services.model.weights import GdnWeights, load_mtp, load_target, view_target
from tests.oracle.folder import read_tensors
from tests.oracle.models import random_tensors, stored_names, tiny_config, write_folder
from tests.oracle.variants import fuse_gdn

EMBEDDED = Path(__file__).parents[3] / "models" / "lumo-tiny"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = tiny_config()
    return write_folder(tmp_path / "model", config, stored_names(random_tensors(config)))


def test_projections_are_stacked_in_the_order_the_kernels_read(folder: Path) -> None:
    stored = read_tensors(folder)
    weights = load_target(Checkpoint.open(folder), torch.float32)
    mixer = weights.blocks[1].mixer
    assert isinstance(mixer, GdnWeights)
    prefix = "layers.1.linear_attn."
    names = [f"{prefix}in_proj_{part}.weight" for part in ("qkv", "z", "a", "b")]
    assert torch.equal(mixer.in_proj, torch.cat([stored[name] for name in names]))
    assert torch.equal(mixer.conv, stored[prefix + "conv1d.weight"][:, 0])
    assert torch.equal(weights.a_log[1], stored[prefix + "A_log"])
    assert mixer.a_log.data_ptr() == weights.a_log[1].data_ptr()


def test_fused_file_loads_the_same_bits(tmp_path: Path, folder: Path) -> None:
    config, tensors = fuse_gdn(tiny_config(), random_tensors(tiny_config()))
    fused = write_folder(tmp_path / "fused", config, stored_names(tensors))
    blocks = [load_target(Checkpoint.open(f), torch.float32).flat for f in (folder, fused)]
    for name in blocks[0].views:
        assert torch.equal(blocks[0][name], blocks[1][name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_part_is_aligned_and_typed(folder: Path, dtype: torch.dtype) -> None:
    weights = load_target(Checkpoint.open(folder), dtype)
    for name, view in weights.flat.views.items():
        assert view.data_ptr() % 256 == 0, name
        assert view.dtype == (torch.float32 if "norm" in name or name in GATES else dtype), name


GATES = ("A_log", "dt_bias")


def test_another_process_reads_the_same_weights_from_the_block(folder: Path) -> None:
    checkpoint = Checkpoint.open(folder)
    parts = target_parts(checkpoint.config, torch.float32)
    block = empty_block(parts, "cpu")
    assert block.numel() == block_bytes(parts)
    loaded = load_target(checkpoint, torch.float32, block=block)
    viewed = view_target(checkpoint.config, torch.float32, block)
    assert torch.equal(viewed.blocks[3].down, loaded.blocks[3].down)
    assert viewed.head.data_ptr() == loaded.head.data_ptr()


def test_every_stored_tensor_is_used_once(folder: Path) -> None:
    config = Checkpoint.open(folder).config
    parts = (*target_parts(config, torch.float32), *mtp_parts(config, torch.float32))
    sources = [name for part in parts for name in part.sources]
    assert sorted(sources) == sorted(read_tensors(folder))


def test_progress_ends_at_the_whole(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    load_mtp(Checkpoint.open(folder), torch.float32, progress=lambda *step: seen.append(step))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] > 0


def test_embedded_checkpoint_is_described() -> None:
    facts = describe(EMBEDDED)
    assert (facts.num_gdn_layers, facts.num_attention_layers) == (6, 2)
    assert (facts.num_parameters, facts.num_mtp_parameters) == (9_641_288, 886_144)
    assert (facts.mtp_tensors, facts.is_tied, facts.dtypes) == ("15/15", True, {"BF16": 123})
    assert facts.has_manifest
    assert not facts.problem


def test_folder_without_mtp_is_described_with_what_will_be_off(tmp_path: Path) -> None:
    config = tiny_config(mtp_num_hidden_layers=0)
    folder = write_folder(tmp_path / "a", config, stored_names(random_tensors(config)))
    assert describe(folder).mtp_tensors == "0/15"
    assert "only suffix look-ups draft" in describe(folder).problem
    claimed = write_folder(tmp_path / "b", tiny_config(), stored_names(random_tensors(config)))
    assert describe(claimed).mtp_tensors == "0/15"
    assert "0 of 15 MTP tensors" in describe(claimed).problem
