"""Random words, weights and sortable keys in Triton; the bits of reference.py.

Kernels that use these compile with fp fusion off.
"""

import triton
import triton.language as tl

from services.kernels import fixed

ROUNDS = tl.constexpr(fixed.PHILOX_ROUNDS)
PHILOX_A = tl.constexpr(fixed.PHILOX_A)
PHILOX_B = tl.constexpr(fixed.PHILOX_B)
PHILOX_KEY_A = tl.constexpr(fixed.PHILOX_KEY_A)
PHILOX_KEY_B = tl.constexpr(fixed.PHILOX_KEY_B)
COEFFICIENTS = tl.constexpr(fixed.EXP_COEFFICIENTS)
NUM_COEFFICIENTS = tl.constexpr(len(fixed.EXP_COEFFICIENTS))
LOG2_E = tl.constexpr(fixed.LOG2_E)
LN2_HIGH = tl.constexpr(fixed.LN2_HIGH)
LN2_LOW = tl.constexpr(fixed.LN2_LOW)
WEIGHT_ONE = tl.constexpr(fixed.WEIGHT_ONE)
MIN_EXPONENT = tl.constexpr(fixed.MIN_EXPONENT)
MAX_SHIFT = tl.constexpr(fixed.MAX_SHIFT)
LOW_KEY = tl.constexpr(-(1 << 31))
HIGH_KEY = tl.constexpr((1 << 31) - 1)


@triton.jit
def _word(value):
    return value.to(tl.uint32, bitcast=True).to(tl.uint64)


@triton.jit
def random_word(seed_low, seed_high, choice, position):
    """Return the 64 random bits of a position; see reference.philox_word."""
    a, b = _word(position), _word(choice)
    c, d = a * 0, a * 0
    key_a, key_b = _word(seed_low), _word(seed_high)
    for _ in tl.static_range(ROUNDS):
        first = a * PHILOX_A
        second = c * PHILOX_B
        a = (second >> 32) ^ b ^ key_a
        b = second & 0xFFFFFFFF
        c = (first >> 32) ^ d ^ key_b
        d = first & 0xFFFFFFFF
        key_a = (key_a + PHILOX_KEY_A) & 0xFFFFFFFF
        key_b = (key_b + PHILOX_KEY_B) & 0xFFFFFFFF
    return (b << 32) | a


@triton.jit
def weight(exponents):
    """Return exp of fp64 exponents <= 0 in units of 2^-42; see reference.fixed_weights."""
    z = tl.where(exponents > MIN_EXPONENT, exponents, MIN_EXPONENT)
    n = tl.floor(z * LOG2_E + 0.5)
    r = (z - n * LN2_HIGH) - n * LN2_LOW
    value = r * 0.0 + COEFFICIENTS[0]
    for i in tl.static_range(1, NUM_COEFFICIENTS):
        value = value * r + COEFFICIENTS[i]
    shift = tl.minimum((-n).to(tl.int64), MAX_SHIFT)
    return (value * WEIGHT_ONE).to(tl.int64) >> shift


@triton.jit
def target_weight(total, word):
    """Return floor(word * total / 2^64)."""
    return tl.umulhi(total.to(tl.uint64), word).to(tl.int64)


@triton.jit
def sort_key(values):
    """Return int32 keys above LOW_KEY that sort as fp32 values do; both zeros share one key."""
    bits = (values + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
