"""Which weights meet the matrix product, and how a CPU lays them out."""

import torch

from services.kernels import linear
from services.model.weights import BlockWeights, MtpWeights, TargetWeights


def prepare_products(target: TargetWeights, mtp: MtpWeights | None, narrow: bool) -> None:
    """Lay out every weight of a matrix product before the first forward.

    Args    narrow: products round both operands to bfloat16 (see linear.prepare).
    """
    for weight in (*_of_blocks(target.blocks), target.head, *_of_mtp(mtp)):
        linear.prepare(weight, narrow)


def prepare_draft_products(head: torch.Tensor, mtp: MtpWeights | None, narrow: bool) -> None:
    """Lay out what a drafter in a process of its own multiplies with."""
    for weight in (head, *_of_mtp(mtp)):
        linear.prepare(weight, narrow)


def _of_mtp(mtp: MtpWeights | None) -> list[torch.Tensor]:
    return [] if mtp is None else [mtp.fc, *_of_blocks((mtp.block,))]


def _of_blocks(blocks: tuple[BlockWeights, ...]) -> list[torch.Tensor]:
    found = []
    for block in blocks:
        found += [block.mixer.in_proj, block.mixer.out_proj, block.gate_up, block.down]
    return found
