"""The step of the running softmax in base 2: one source for every attention kernel.

Scores are raw products; `scale` holds log2(e) / sqrt(D). A row that has seen no key has top -inf;
its base is finite, so that its weights and its decay are 0 and no -inf - -inf arises.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.0e38)


@triton.jit
def new_base_of(base, top, scale):
    """Return the exponent that weights are relative to, once scores up to `top` were seen."""
    return tl.maximum(base, top * scale)


@triton.jit
def weights_of(scores, base, scale):
    """Return the weights of a block of scores; a score of -inf has weight 0."""
    return tl.exp2(tl.fma(scores, scale, -base[:, None]))
