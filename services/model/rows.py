"""Scratch tensors of a forward, made once; each forward uses their first rows."""

from dataclasses import dataclass

import torch

from services.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class RowBuffers:
    """Hold the scratch of R rows.

    Shapes  ids [R] int32; residual, normed, delta [R, d]; gdn_in [R, C + Hv * dv + 2 * Hv] with
            its parts raw | z | ab; mixed [R, C]; core [R, Hv, dv]; gdn_out [R, Hv * dv];
            qkv [R, Hq * 2D + 2 * Hkv * D]; q, attn [R, Hq, D]; attn_out [R, Hq * D];
            gate_up [R, 2F]; inner [R, F].
    """

    ids: torch.Tensor
    residual: torch.Tensor
    normed: torch.Tensor
    delta: torch.Tensor
    gdn_in: torch.Tensor
    raw: torch.Tensor
    z: torch.Tensor
    ab: torch.Tensor
    mixed: torch.Tensor
    core: torch.Tensor
    gdn_out: torch.Tensor
    qkv: torch.Tensor
    q: torch.Tensor
    attn: torch.Tensor
    attn_out: torch.Tensor
    gate_up: torch.Tensor
    inner: torch.Tensor


class ForwardBuffers:
    """Allocate scratch for up to `max_rows` rows and lend the first R of them."""

    def __init__(
        self,
        config: ModelConfig,
        max_rows: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        self._config = config
        self._blocks = {
            name: torch.zeros((max_rows, *shape), dtype=dtype, device=device)
            for name, shape in _shapes(config).items()
        }
        self._blocks["ids"] = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._lent: dict[int, RowBuffers] = {}

    def rows(self, count: int) -> RowBuffers:
        """Return the buffers of `count` rows; the same tensors at each call."""
        if count not in self._lent:
            parts = {name: block[:count] for name, block in self._blocks.items()}
            channels, width = self._config.conv_channels, self._config.value_width
            parts["raw"] = parts["gdn_in"][:, :channels]
            parts["z"] = parts["gdn_in"][:, channels : channels + width]
            parts["ab"] = parts["gdn_in"][:, channels + width :]
            self._lent[count] = RowBuffers(**parts)
        return self._lent[count]


def _shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, width = (config.hidden_size,), config.value_width
    heads = (config.num_query_heads, config.head_dim)
    return {
        "residual": hidden,
        "normed": hidden,
        "delta": hidden,
        "gdn_in": (config.conv_channels + width + 2 * config.num_gdn_value_heads,),
        "mixed": (config.conv_channels,),
        "core": (config.num_gdn_value_heads, config.gdn_value_dim),
        "gdn_out": (width,),
        "qkv": (2 * config.query_width + 2 * config.kv_width,),
        "q": heads,
        "attn": heads,
        "attn_out": (config.query_width,),
        "gate_up": (2 * config.intermediate_size,),
        "inner": (config.intermediate_size,),
    }
