"""Which owned tensor is made of which stored ones: the fusions of loading."""

from dataclasses import dataclass
from math import prod

import torch

from services.model.config import CONV_TAPS, GDN, ModelConfig
from services.model.tensor_names import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    MTP_LAYER,
    mtp_tensors,
    target_tensors,
)


@dataclass(frozen=True, slots=True)
class Part:
    """Name an owned tensor and the stored tensors that it stacks, in order, by rows."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    sources: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Return the bytes the part takes, padding apart."""
        return prod(self.shape) * self.dtype.itemsize


def target_parts(config: ModelConfig, dtype: torch.dtype) -> tuple[Part, ...]:
    """Return the parts of the target model, in the order they are laid out.

    Numbers matrices in `dtype`; norms, A_log and dt_bias in fp32, as stored or widened.
    """
    make = _PartMaker(config, dtype)
    parts = [make.matrix(EMBEDDING, EMBEDDING)]
    if not config.is_tied:
        parts.append(make.matrix(HEAD, HEAD))
    parts += [make.vector(FINAL_NORM, FINAL_NORM), *make.gates()]
    for index, kind in enumerate(config.layer_types):
        prefix = f"layers.{index}."
        parts += make.gdn(prefix) if kind == GDN else make.attention(prefix)
        parts += make.mlp(prefix)
    return tuple(parts)


def mtp_parts(config: ModelConfig, dtype: torch.dtype) -> tuple[Part, ...]:
    """Return the parts of the MTP block; none if the model has no MTP layer."""
    if not config.num_mtp_layers:
        return ()
    make = _PartMaker(config, dtype)
    vectors = ("mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight")
    return (
        make.matrix("mtp.fc.weight", "mtp.fc.weight"),
        *(make.vector(name, name) for name in (*vectors, "mtp.norm.weight")),
        *make.attention(MTP_LAYER),
        *make.mlp(MTP_LAYER),
    )


class _PartMaker:
    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self._config, self._dtype = config, dtype
        self._shapes = target_tensors(config) | mtp_tensors(config)

    def matrix(self, name: str, *sources: str) -> Part:
        rows = sum(self._shapes[source][0] for source in sources)
        width = prod(self._shapes[sources[0]][1:])
        return Part(name, (rows, width), self._dtype, sources)

    def vector(self, name: str, *sources: str) -> Part:
        shape = (len(sources), *self._shapes[sources[0]])
        return Part(name, shape if len(sources) > 1 else shape[1:], torch.float32, sources)

    def gates(self) -> list[Part]:
        """Stack A_log and dt_bias of all GDN layers: replay reads every layer at once."""
        layers = [i for i, kind in enumerate(self._config.layer_types) if kind == GDN]
        shape = (len(layers), self._config.num_gdn_value_heads)
        parts = []
        for name in ("A_log", "dt_bias"):
            sources = tuple(f"layers.{index}.linear_attn.{name}" for index in layers)
            parts.append(Part(name, shape, torch.float32, sources))
        return parts

    def gdn(self, prefix: str) -> list[Part]:
        inner = prefix + "linear_attn."
        projections = [f"{inner}in_proj_{part}.weight" for part in ("qkv", "z", "a", "b")]
        conv = (self._config.conv_channels, CONV_TAPS)
        return [
            self.matrix(prefix + "in_proj", *projections),
            Part(prefix + "conv", conv, self._dtype, (inner + "conv1d.weight",)),
            self.vector(prefix + "gated_norm", inner + "norm.weight"),
            self.matrix(prefix + "out_proj", inner + "out_proj.weight"),
        ]

    def attention(self, prefix: str) -> list[Part]:
        inner = prefix + "self_attn."
        projections = [f"{inner}{part}_proj.weight" for part in ("q", "k", "v")]
        return [
            self.matrix(prefix + "in_proj", *projections),
            self.vector(prefix + "q_norm", inner + "q_norm.weight"),
            self.vector(prefix + "k_norm", inner + "k_norm.weight"),
            self.matrix(prefix + "out_proj", inner + "o_proj.weight"),
        ]

    def mlp(self, prefix: str) -> list[Part]:
        sources = (f"{prefix}mlp.gate_proj.weight", f"{prefix}mlp.up_proj.weight")
        return [
            self.vector(prefix + "input_norm", prefix + "input_layernorm.weight"),
            self.vector(prefix + "post_norm", prefix + "post_attention_layernorm.weight"),
            self.matrix(prefix + "gate_up", *sources),
            self.matrix(prefix + "down", prefix + "mlp.down_proj.weight"),
        ]
