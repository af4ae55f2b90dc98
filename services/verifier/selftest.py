"""Start-up proof that a row's bits depend on that row alone, and what they depend on else."""

from __future__ import annotations

from typing import Any

import torch

from services.contract.errors import UnavailableError
from services.contract.limits import MAX_ROWS
from services.kernels import linear
from services.kernels.dispatch import backend
from services.kernels.threads import num_threads
from services.model.weights import TargetWeights

_OPS = ("linear", "norm", "conv", "gdn", "attention", "sample", "publish")


def check_rows(weights: TargetWeights, max_trees: int) -> None:
    """Compare rows at every slab size with rows at 32, on one weight of each shape.

    Raises  UnavailableError naming the shape that does not keep its bits.
    """
    for weight in _one_of_each_shape(weights):
        for trees in range(1, max_trees + 1):
            rows = trees * MAX_ROWS
            if not linear.row_invariance_check(weight, rows):
                shape = "x".join(str(size) for size in weight.shape)
                text = f"matmul {shape} at {rows} rows lets rows see each other on this machine"
                raise UnavailableError("ROWS_NOT_INVARIANT", text + "; lower max_sequences")


def fingerprint(weights: TargetWeights) -> dict[str, Any]:
    """Return what the engine's bits depend on besides weights and inputs."""
    device = weights.embedding.device
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": num_threads(),
        "torch": torch.__version__,
        "dtype": str(weights.embedding.dtype).removeprefix("torch."),
        "narrow_products": bool(getattr(weights.head, "is_narrow", False)),
        "kernels": {op: backend(op, device.type).__name__.rpartition(".")[2] for op in _OPS},
    }


def _one_of_each_shape(weights: TargetWeights) -> list[torch.Tensor]:
    found = {weights.head.shape: weights.head}
    for block in weights.blocks:
        mixer = block.mixer
        for weight in (mixer.in_proj, mixer.out_proj, block.gate_up, block.down):
            found.setdefault(weight.shape, weight)
    return list(found.values())
