"""Fixed-point weights and the counter generator of the sampler: one arithmetic, three backends.

A weight is exp(z) for z <= 0 as an integer in units of 2^-42. Integer sums do not depend on
their order, so a list of survivors and a pass over the whole vocabulary give the same token.
Each weight is made of plain fp64 products and sums, never contracted: the same bits everywhere.
"""

from typing import Final

# Weight of the most likely token; 2^20 such tokens still fit in an int64.
WEIGHT_BITS: Final = 42
WEIGHT_ONE: Final = float(1 << WEIGHT_BITS)
# Below this exponent a weight is 0.
MIN_EXPONENT: Final = -64.0
MAX_SHIFT: Final = 62

LOG2_E: Final = 1.4426950408889634
# ln 2 in two parts; the first has 32 trailing zero bits, so n * LN2_HIGH is exact.
LN2_HIGH: Final = 0.6931467056274414
LN2_LOW: Final = 4.7493250390316726e-07

# Taylor coefficients of exp on |r| <= ln(2) / 2, highest first; relative error < 2^-52.
EXP_COEFFICIENTS: Final = (
    1.0 / 479001600.0,
    1.0 / 39916800.0,
    1.0 / 3628800.0,
    1.0 / 362880.0,
    1.0 / 40320.0,
    1.0 / 5040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
)

# Philox4x32-10.
PHILOX_ROUNDS: Final = 10
PHILOX_A: Final = 0xD2511F53
PHILOX_B: Final = 0xCD9E8D57
PHILOX_KEY_A: Final = 0x9E3779B9
PHILOX_KEY_B: Final = 0xBB67AE85
