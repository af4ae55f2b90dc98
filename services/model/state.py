"""The device tensors of the target that a forward reads and writes, by their arena names."""

from dataclasses import dataclass, fields
from typing import Protocol

import torch


class TensorNames(Protocol):
    """Anything that returns a tensor by name: an arena, a mapping."""

    def __getitem__(self, name: str, /) -> torch.Tensor:
        """Return the tensor of that name."""
        ...


@dataclass(frozen=True, slots=True)
class TargetState:
    """Hold the target's state, pages and operand rings.

    Shapes  S slots, L GDN layers, A attention layers, P pages, C channels:
            recurrent [S, 2, L, Hv, dv, dk] fp32; conv [S, 2, L, 3, C];
            kv [A, P, 2, Hkv, 64, D]; words [S, 16], page_table [S, max_pages] int32;
            raw_ring, mixed_ring [S, L, 32, C]; ab_ring [S, L, 32, 2, Hv];
            kv_ring [S, A, 2, Hkv, 32, D]; hidden_ring [S, 2, 32, d]; prefill_hidden [grid, d].
    """

    recurrent: torch.Tensor
    conv: torch.Tensor
    kv: torch.Tensor
    words: torch.Tensor
    page_table: torch.Tensor
    raw_ring: torch.Tensor
    mixed_ring: torch.Tensor
    ab_ring: torch.Tensor
    kv_ring: torch.Tensor
    hidden_ring: torch.Tensor
    prefill_hidden: torch.Tensor

    @classmethod
    def of(cls, tensors: TensorNames) -> "TargetState":
        """Return the state made of an arena's tensors of these names."""
        return cls(**{field.name: tensors[field.name] for field in fields(cls)})
