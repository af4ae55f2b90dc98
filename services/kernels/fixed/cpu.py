"""Random words, weights and the inverse CDF in numba; the bits of reference.py."""

import math

import numpy as np

from services.kernels import fixed
from services.kernels.jit.cpu import compiled


@compiled
def random_word(seed_low, seed_high, choice, position):
    """Return the 64 random bits of a position; see reference.philox_word."""
    a, b = np.uint64(position), np.uint64(np.uint32(choice))
    c, d = np.uint64(0), np.uint64(0)
    key_a, key_b = np.uint64(np.uint32(seed_low)), np.uint64(np.uint32(seed_high))
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(fixed.PHILOX_ROUNDS):
        first = np.uint64(fixed.PHILOX_A) * a
        second = np.uint64(fixed.PHILOX_B) * c
        a = (second >> half) ^ b ^ key_a
        b = second & mask
        c = (first >> half) ^ d ^ key_b
        d = first & mask
        key_a = (key_a + np.uint64(fixed.PHILOX_KEY_A)) & mask
        key_b = (key_b + np.uint64(fixed.PHILOX_KEY_B)) & mask
    return (b << half) | a


@compiled
def weight(z):
    """Return exp(z), z <= 0, in units of 2^-42; see reference.fixed_weights."""
    z = z if z > fixed.MIN_EXPONENT else fixed.MIN_EXPONENT
    n = math.floor(z * fixed.LOG2_E + 0.5)
    r = (z - n * fixed.LN2_HIGH) - n * fixed.LN2_LOW
    value = fixed.EXP_COEFFICIENTS[0]
    for i in range(1, len(fixed.EXP_COEFFICIENTS)):
        value = value * r + fixed.EXP_COEFFICIENTS[i]
    return np.int64(value * fixed.WEIGHT_ONE) >> min(np.int64(-n), np.int64(fixed.MAX_SHIFT))


@compiled
def total_weight(weights, size):
    """Return the sum of the first `size` weights."""
    total = np.int64(0)
    for i in range(size):
        total += weights[i]
    return total


@compiled
def pick(ids, weights, size, total, word):
    """Return the id at which the running weight passes word / 2^64 of the total."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = word >> half, word & low
    c, d = np.uint64(total) >> half, np.uint64(total) & low
    cross = a * d + ((b * d) >> half)
    middle = b * c + (cross & low)
    target = np.int64(a * c + (cross >> half) + (middle >> half))
    running = np.int64(0)
    for i in range(size):
        running += weights[i]
        if running > target:
            return ids[i]
    return ids[size - 1]
