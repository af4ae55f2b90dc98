"""How often a proposal with such and such scores was right: counts, learned while decoding."""

from __future__ import annotations

from bisect import bisect
from typing import Final

NONE: Final = 0
PRIOR_WEIGHT: Final = 8.0
MAX_TESTS: Final = 4096.0

_MAX_RANK: Final = 2
_LOGPROBS: Final = (-4.6, -3.5, -2.3, -1.6, -1.2, -0.92, -0.69, -0.51, -0.36, -0.22, -0.105, -0.02)
_LENGTHS: Final = (2, 3, 5, 9, 17)
_SHARES: Final = (0.5, 0.99)
_MAX_TOTAL: Final = 3
_BINS: Final = len(_LOGPROBS) + 1
MTP_CELLS: Final = 1 + (_MAX_RANK + 1) * _BINS
SUFFIX_CELLS: Final = 1 + (len(_LENGTHS) + 1) * (len(_SHARES) + 1) * _MAX_TOTAL


def mtp_cell(rank: int, logprob: float) -> int:
    """Return the cell of an MTP proposal."""
    return 1 + min(rank, _MAX_RANK) * _BINS + bisect(_LOGPROBS, logprob)


def suffix_cell(length: int, count: int, total: int) -> int:
    """Return the cell of a suffix proposal: agreement, share of the copies, how many."""
    agreement = bisect(_LENGTHS, length) * (len(_SHARES) + 1)
    share = bisect(_SHARES, count / total)
    return 1 + (agreement + share) * _MAX_TOTAL + min(total, _MAX_TOTAL) - 1


class Calibration:
    """Estimate P(accepted | parent accepted) of a proposal by its MTP and suffix cells.

    A pair of cells starts from the chance that either source is right, each source's cell
    from its own scores; both move to the counted shares.
    Numbers depends on the learned history alone; fixed size.
    """

    def __init__(self) -> None:
        self._mtp = [_Share(_mtp_prior(cell)) for cell in range(MTP_CELLS)]
        self._suffix = [_Share(_suffix_prior(cell)) for cell in range(SUFFIX_CELLS)]
        self._pairs = [_Share(0.0) for _ in range(MTP_CELLS * SUFFIX_CELLS)]

    def probability(self, mtp: int, suffix: int) -> float:
        """Return the estimate; a cell is NONE where that source does not propose the token."""
        missed = 1.0
        if mtp:
            missed = 1.0 - self._mtp[mtp].estimate()
        if suffix:
            missed *= 1.0 - self._suffix[suffix].estimate()
        return self._pairs[mtp * SUFFIX_CELLS + suffix].estimate_from(1.0 - missed)

    def learn(self, mtp: int, suffix: int, was_right: bool) -> None:
        """Count one proposal whose parent was accepted."""
        if mtp:
            self._mtp[mtp].add(was_right)
        if suffix:
            self._suffix[suffix].add(was_right)
        self._pairs[mtp * SUFFIX_CELLS + suffix].add(was_right)


class _Share:
    """Hits among tests, with a prior; halved when full, so that the recent past counts more."""

    __slots__ = ("_hits", "_prior", "_tests")

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._hits = 0.0
        self._tests = 0.0

    def estimate(self) -> float:
        return self.estimate_from(self._prior)

    def estimate_from(self, prior: float) -> float:
        return (self._hits + PRIOR_WEIGHT * prior) / (self._tests + PRIOR_WEIGHT)

    def add(self, was_right: bool) -> None:
        if self._tests >= MAX_TESTS:
            self._hits /= 2
            self._tests /= 2
        self._hits += was_right
        self._tests += 1


def _mtp_prior(cell: int) -> float:
    middles = (0.005, 0.02, 0.065, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.94, 0.99)
    return middles[(cell - 1) % _BINS] if cell else 0.0


def _suffix_prior(cell: int) -> float:
    if not cell:
        return 0.0
    group, _ = divmod(cell - 1, _MAX_TOTAL)
    agreement, share = divmod(group, len(_SHARES) + 1)
    trust = (0.3, 0.45, 0.6, 0.75, 0.85, 0.9)[agreement]
    return trust * (0.25, 0.7, 1.0)[share]
