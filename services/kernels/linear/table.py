"""Which backend serves a weight shape: the library where it was measured row-invariant, else ours.

The library's entries were proved on the named architecture and library version; a self-test in
each process repeats the proof and may only refuse to start. Any other pair takes the fixed tile.
"""

from typing import Final, NamedTuple

# (architecture, torch version) -> weight shapes [N, K] whose bf16 product keeps a row's bits.
# Where the fixed tile is the faster one at 32 rows (small weights, the 27B head) it stays.
LIBRARY: Final[dict[tuple[int, str], frozenset[tuple[int, int]]]] = {
    (90, "2.11.0+cu130"): frozenset(
        {(16480, 5120), (5120, 6144), (14336, 5120), (34816, 5120), (5120, 17408)}
    ),
}


class FixedTile(NamedTuple):
    """One configuration of the fixed-tile product."""

    block_n: int
    block_k: int
    split_k: int
    num_warps: int
    num_stages: int


def fixed_tile(arch: int, features: int, width: int) -> FixedTile:
    """Return the fixed tile of a weight [N, K]: enough programs to fill the machine."""
    block_n, block_k = 64, min(128, width & -width)
    programs = -(-features // block_n)
    wanted = 528 if arch == 90 else 192
    split_k = max(1, min(8, wanted // programs, width // block_k // 4))
    stages = 4 if arch == 90 else 2
    return FixedTile(block_n, block_k, split_k, 4, stages)
