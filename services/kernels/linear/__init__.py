"""Weight-bound matrix products whose rows do not see each other."""

import torch

from services.kernels.dispatch import backend


def linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Write x [R, K] times weight [N, K] transposed to `out` [R, N]; fp32 sums, one cast.

    Args    R: 32, 64, 96 or 128 rows decoding, a fixed grid in prefill. `out` may be fp32 with
            a narrower model dtype (logits).
    Numbers at a fixed R a row's bits depend on that row alone (row_invariance_check); where
            needs_fixed_rows is False, at any R.
    """
    backend("linear", x.device.type).linear(x, weight, out)


def prepare(weight: torch.Tensor, narrow: bool) -> None:
    """Lay a weight [N, K] out for its device's product, before the first use.

    Args    narrow: round both operands of every later product to bfloat16 (sums stay fp32),
            which doubles the speed where the CPU has bfloat16 dot products. Without this call
            a CPU weight is laid out in fp32 when it is first used.
    Numbers exact for weights that were stored in bfloat16. The layout stays with this tensor
            object; a later write to it makes a new one.
    """
    prepare_on_device = getattr(backend("linear", weight.device.type), "prepare", None)
    if prepare_on_device is not None:
        prepare_on_device(weight, narrow)


def row_invariance_check(weight: torch.Tensor, rows: int) -> bool:
    """Say whether a row keeps its bits when the other rows change, move, or hold NaN.

    Shapes  weight [N, K]; compares `rows` rows against 32.
    Used    at start-up, per weight shape; a False must refuse to start.
    """
    result: bool = backend("linear", weight.device.type).row_invariance_check(weight, rows)
    return result


def needs_fixed_rows(device: str) -> bool:
    """Say whether a device type's forwards must keep to fixed row counts to stay exact.

    Where it is False (the CPU's own product) a forward may hold the live rows alone: T rows a
    sequence, T = the largest tree of the slab, in every kernel.
    """
    return bool(getattr(backend("linear", device), "FIXED_ROWS", True))
