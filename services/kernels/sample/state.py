"""The buffers that one sampler reads and writes, and its scratch."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from services.contract.limits import MAX_ROWS, MAX_SLAB, SURVIVORS

# Programs that share a row on the device, and the lanes of each.
SPLITS: Final = 4
SPLIT_LANES: Final = 2048


@dataclass(frozen=True, eq=False)
class SampleState:
    """Hold the verifier's sampling buffers by name; S slots, V vocabulary.

    Shapes  words [S, 16], path [S, 64], sampling [S, 32] int32; prompt_mask [S, V] uint8 (marks
            of params.py); output_counts [S, V] int32, emitted tokens, the pending root included;
            logit_bias [S, V] fp32, -inf bans; logprob_ids int32, logprob_values fp32
            [S, 16, 1 + n].
    Args    max_sequences: sequences of a slab, which size the scratch.
            survivors: entries of a row's survivor list; more take a full-vocabulary pass.
            lanes: width of a split's tile on the device; both powers of two.
    """

    words: torch.Tensor
    path: torch.Tensor
    sampling: torch.Tensor
    prompt_mask: torch.Tensor
    output_counts: torch.Tensor
    logit_bias: torch.Tensor
    logprob_ids: torch.Tensor
    logprob_values: torch.Tensor
    max_sequences: int = MAX_SLAB
    survivors: int = SURVIVORS
    lanes: int = SPLIT_LANES
    drawn: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        shape = (self.max_sequences, MAX_ROWS)
        drawn = torch.full(shape, -1, dtype=torch.int32, device=self.path.device)
        object.__setattr__(self, "drawn", drawn)

    @property
    def vocab_size(self) -> int:
        """Return the number of token ids."""
        return self.logit_bias.shape[1]

    @cached_property
    def split_scratch(self) -> "SplitScratch":
        """Return the scratch of the device kernels; made at the first use."""
        splits, device = self.max_sequences * MAX_ROWS * SPLITS, self.path.device
        sizes = (1, self.lanes, 1, 1, self.survivors, self.survivors)
        dtypes = (torch.int64, torch.float32, torch.int32, torch.int64, torch.float32, torch.int32)
        tensors = (
            torch.empty(splits * size, dtype=dtype, device=device)
            for size, dtype in zip(sizes, dtypes, strict=True)
        )
        return SplitScratch(*tensors)

    @cached_property
    def host(self) -> "tuple[Slots, Scratch]":
        """Return the same memory as numpy arrays, and scratch; CPU only."""
        return _slots(self), make_scratch(self.vocab_size)


class SplitScratch(NamedTuple):
    """What the splits of a row hand on: maxima, lane maxima, list sizes, weights, lists."""

    tops: torch.Tensor
    lane_tops: torch.Tensor
    sizes: torch.Tensor
    totals: torch.Tensor
    list_values: torch.Tensor
    list_ids: torch.Tensor


class Slots(NamedTuple):
    """The state's buffers as numpy arrays, the sampling words in three views."""

    slot_words: npt.NDArray[np.int32]
    path: npt.NDArray[np.int32]
    words: npt.NDArray[np.int32]
    doubles: npt.NDArray[np.float64]
    singles: npt.NDArray[np.float32]
    marks: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.int32]
    bias: npt.NDArray[np.float32]
    logprob_ids: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]


class Scratch(NamedTuple):
    """One row of scratch: processed values, then survivors with keys, exponents, weights."""

    values: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint32]
    exponents: npt.NDArray[np.float64]
    weights: npt.NDArray[np.int64]


def make_scratch(vocab: int) -> Scratch:
    """Return scratch for rows of `vocab` logits."""
    return Scratch(
        np.empty(vocab, np.float32),
        np.empty(vocab, np.int32),
        np.empty(vocab, np.uint32),
        np.empty(vocab, np.float64),
        np.empty(vocab, np.int64),
    )


def _slots(state: SampleState) -> Slots:
    sampling = state.sampling.numpy()
    views = (sampling, sampling.view(np.float64), sampling.view(np.float32))
    rest = (state.prompt_mask, state.output_counts, state.logit_bias)
    tops = (state.logprob_ids, state.logprob_values)
    arrays = (tensor.numpy() for tensor in (*rest, *tops))
    return Slots(state.words.numpy(), state.path.numpy(), *views, *arrays)
