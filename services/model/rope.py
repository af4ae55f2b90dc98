"""Rotary positions: how a config spells them, and the inverse frequencies they mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from services.contract.errors import CheckpointError

DEFAULT_THETA: Final = 10000.0
DEFAULT_FACTOR: Final = 0.25


@dataclass(frozen=True, slots=True)
class Rope:
    """Hold the base and the number of rotated dimensions of a head."""

    theta: float
    dim: int

    def inverse_frequencies(self, device: torch.device | str = "cpu") -> torch.Tensor:
        """Return theta^(-2j / dim) for j < dim / 2, fp32 [dim / 2]."""
        steps = torch.arange(0, self.dim, 2, dtype=torch.float32)
        return (1.0 / self.theta ** (steps / self.dim)).to(device)


def read_rope(text: Mapping[str, Any], head_dim: int) -> Rope:
    """Return the rotary settings of a text config: rope_parameters, or the older flat keys.

    Raises  CheckpointError for any scaling: only the default type is supported.
    """
    values: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        nested = text.get(key) or {}
        if not isinstance(nested, dict):
            raise CheckpointError("CONFIG", "config.json: must be an object", key)
        values.update(nested)
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in ("default", "mrope"):
        message = f"config.json: rope type {kind!r} is not supported; only 'default' is"
        raise CheckpointError("CONFIG", message, "rope_parameters")
    theta = values.get("rope_theta", text.get("rope_theta", DEFAULT_THETA))
    factor = values.get("partial_rotary_factor", text.get("partial_rotary_factor", DEFAULT_FACTOR))
    theta, factor = _number(theta, "rope_theta", 1e12), _number(factor, "partial_rotary_factor", 1)
    dim = int(head_dim * factor)
    if dim < 2 or dim % 2:
        message = f"config.json: rotates {dim} dims of {head_dim}; need an even number from 2"
        raise CheckpointError("CONFIG", message, "partial_rotary_factor")
    return Rope(theta, dim)


def _number(value: object, key: str, most: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
        message = f"config.json: {value!r}; need a number above 0, at most {most:g}"
        raise CheckpointError("CONFIG", message, key)
    return float(value)
