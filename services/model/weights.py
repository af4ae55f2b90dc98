"""The weights by role: of the target model, of its blocks, and of the MTP block."""

from dataclasses import dataclass
from typing import Final

import torch

from services.contract.errors import CheckpointError
from services.model.checkpoint import Checkpoint
from services.model.config import GDN, ModelConfig
from services.model.flat import FlatWeights, Progress, empty_block, fill, no_progress
from services.model.parts import mtp_parts, target_parts
from services.model.tensor_names import EMBEDDING, FINAL_NORM, HEAD, MTP_LAYER

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class GdnWeights:
    """Hold a GDN mixer: in_proj rows qkv | z | a | b, conv [C, 4], and fp32 vectors."""

    in_proj: torch.Tensor
    conv: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    gated_norm: torch.Tensor
    out_proj: torch.Tensor


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Hold an attention mixer: in_proj rows (query | gate per head) | keys | values."""

    in_proj: torch.Tensor
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    out_proj: torch.Tensor


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """Hold a decoder block: two norms, a mixer, an MLP (gate_up rows gate | up)."""

    input_norm: torch.Tensor
    mixer: GdnWeights | AttentionWeights
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, slots=True)
class TargetWeights:
    """Hold the target model; `flat` owns the memory.

    Shapes  embedding, head [V, d] (one tensor if tied); a_log, dt_bias [L, Hv] fp32.
    """

    flat: FlatWeights
    embedding: torch.Tensor
    head: torch.Tensor
    final_norm: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    blocks: tuple[BlockWeights, ...]


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """Hold the MTP block; `flat` owns the memory. Embedding and head are the target's."""

    flat: FlatWeights
    fc: torch.Tensor
    embedding_norm: torch.Tensor
    hidden_norm: torch.Tensor
    block: BlockWeights
    norm: torch.Tensor


def view_target(config: ModelConfig, dtype: torch.dtype, block: torch.Tensor) -> TargetWeights:
    """Return the target weights that lie in a block (see target_parts, block_bytes)."""
    flat = FlatWeights.over(target_parts(config, dtype), block)
    gdn_index = 0
    blocks = []
    for index, kind in enumerate(config.layer_types):
        gates = None
        if kind == GDN:
            gates = (flat["A_log"][gdn_index], flat["dt_bias"][gdn_index])
            gdn_index += 1
        blocks.append(_block(flat, f"layers.{index}.", gates))
    return TargetWeights(
        flat=flat,
        embedding=flat[EMBEDDING],
        head=flat[EMBEDDING if config.is_tied else HEAD],
        final_norm=flat[FINAL_NORM],
        a_log=flat["A_log"],
        dt_bias=flat["dt_bias"],
        blocks=tuple(blocks),
    )


def view_mtp(config: ModelConfig, dtype: torch.dtype, block: torch.Tensor) -> MtpWeights:
    """Return the MTP weights that lie in a block (see mtp_parts, block_bytes)."""
    flat = FlatWeights.over(mtp_parts(config, dtype), block)
    return MtpWeights(
        flat=flat,
        fc=flat["mtp.fc.weight"],
        embedding_norm=flat["mtp.pre_fc_norm_embedding.weight"],
        hidden_norm=flat["mtp.pre_fc_norm_hidden.weight"],
        block=_block(flat, MTP_LAYER, None),
        norm=flat["mtp.norm.weight"],
    )


def load_target(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    progress: Progress = no_progress,
    block: torch.Tensor | None = None,
) -> TargetWeights:
    """Load the target model into `block`, or into a fresh block on `device`.

    Raises  CheckpointError naming the tensor or file that cannot be used.
    """
    _check_tied_head(checkpoint)
    parts = target_parts(checkpoint.config, dtype)
    memory = empty_block(parts, device) if block is None else block
    weights = view_target(checkpoint.config, dtype, memory)
    fill(weights.flat, parts, checkpoint, progress)
    return weights


def load_mtp(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    progress: Progress = no_progress,
    block: torch.Tensor | None = None,
) -> MtpWeights | None:
    """Load the MTP block likewise; None if the model has no MTP layer."""
    parts = mtp_parts(checkpoint.config, dtype)
    if not parts:
        return None
    memory = empty_block(parts, device) if block is None else block
    weights = view_mtp(checkpoint.config, dtype, memory)
    fill(weights.flat, parts, checkpoint, progress)
    return weights


def _block(
    flat: FlatWeights, prefix: str, gates: tuple[torch.Tensor, torch.Tensor] | None
) -> BlockWeights:
    in_proj, out_proj = flat[prefix + "in_proj"], flat[prefix + "out_proj"]
    mixer: GdnWeights | AttentionWeights
    if gates is None:
        norms = flat[prefix + "q_norm"], flat[prefix + "k_norm"]
        mixer = AttentionWeights(in_proj, *norms, out_proj)
    else:
        conv, norm = flat[prefix + "conv"], flat[prefix + "gated_norm"]
        mixer = GdnWeights(in_proj, conv, *gates, norm, out_proj)
    return BlockWeights(
        input_norm=flat[prefix + "input_norm"],
        mixer=mixer,
        post_norm=flat[prefix + "post_norm"],
        gate_up=flat[prefix + "gate_up"],
        down=flat[prefix + "down"],
    )


def _check_tied_head(checkpoint: Checkpoint) -> None:
    if not checkpoint.config.is_tied or HEAD not in checkpoint.tensors:
        return
    if not torch.equal(checkpoint.read(HEAD), checkpoint.read(EMBEDDING)):
        message = f"tensor {HEAD} differs from {EMBEDDING}, but config.json says they are tied"
        raise CheckpointError("TENSOR", f"{message}; set tie_word_embeddings to false")
