"""Random words and fixed-point weights in plain Python and torch; see the package."""

import torch

from services.kernels import fixed

_MASK = 0xFFFFFFFF


def philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return one block of Philox4x32-10.

    Source  Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    key_a, key_b = key
    a, b, c, d = counter
    for _ in range(fixed.PHILOX_ROUNDS):
        first, second = fixed.PHILOX_A * a, fixed.PHILOX_B * c
        a, b, c, d = (
            (second >> 32) ^ b ^ key_a,
            second & _MASK,
            (first >> 32) ^ d ^ key_b,
            first & _MASK,
        )
        key_a = (key_a + fixed.PHILOX_KEY_A) & _MASK
        key_b = (key_b + fixed.PHILOX_KEY_B) & _MASK
    return a, b, c, d


def philox_word(seed: int, choice_index: int, position: int) -> int:
    """Return the 64 random bits r of the token at `position`; its uniform is (r + 1/2) / 2^64.

    The counter is (position, choice index): never a node, a cycle or the order of calls.
    """
    key = (seed & _MASK, seed >> 32)
    low, high, _, _ = philox(key, (position & _MASK, choice_index, 0, 0))
    return high << 32 | low


def fixed_weights(exponents: torch.Tensor) -> torch.Tensor:
    """Return exp of fp64 `exponents` <= 0 as int64 in units of 2^-42."""
    z = exponents.nan_to_num(nan=fixed.MIN_EXPONENT).clamp(min=fixed.MIN_EXPONENT)
    n = torch.floor(z * fixed.LOG2_E + 0.5)
    r = (z - n * fixed.LN2_HIGH) - n * fixed.LN2_LOW
    value = torch.full_like(r, fixed.EXP_COEFFICIENTS[0])
    for coefficient in fixed.EXP_COEFFICIENTS[1:]:
        value = value * r + coefficient
    shift = (-n).long().clamp(max=fixed.MAX_SHIFT)
    return (value * fixed.WEIGHT_ONE).long() >> shift
