"""Launch the sampler's Triton kernels."""

import torch

from services.kernels.sample.kernel_rows import draw_kernel

TILE, WARPS = 8192, 16


def draw(logits, tables, state, out, random_words=None):
    """Do what sample.draw says."""
    count = tables.block.shape[0]
    values, ids = state.lists
    given = out if random_words is None else random_words
    tile = min(TILE, max(1 << (state.vocab_size - 1).bit_length(), state.survivors))
    draw_kernel[(count * 32,)](
        logits, logits.stride(0), logits.stride(1), tables.block, tables.block.stride(0),
        state.sampling, state.sampling.view(torch.float64), state.sampling.view(torch.float32),
        state.prompt_mask, state.output_counts, state.logit_bias, given, out, values, ids,
        state.vocab_size, GIVEN=random_words is not None, TILE=tile, LIST=state.survivors,
        num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
