"""The buffers that one sampler reads and writes, and its scratch."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from services.contract.limits import MAX_ROWS, MAX_SLAB, SURVIVORS


@dataclass(frozen=True, eq=False)
class SampleState:
    """Hold the verifier's sampling buffers by name; S slots, V vocabulary.

    Shapes  words [S, 16], path [S, 64], sampling [S, 32] int32; prompt_mask [S, V] uint8 (marks
            of params.py); output_counts [S, V] int32, emitted tokens, the pending root included;
            logit_bias [S, V] fp32, -inf bans; logprob_ids int32, logprob_values fp32
            [S, 16, 1 + n].
    Args    max_sequences: sequences of a slab, which size the scratch.
            survivors: entries of a row's survivor list; more take a full-vocabulary pass.
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
    def lists(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return survivor lists (values, ids) [rows, survivors], one a row of the slab."""
        shape = (self.max_sequences * MAX_ROWS, self.survivors)
        device = self.path.device
        values = torch.empty(shape, dtype=torch.float32, device=device)
        return values, torch.empty(shape, dtype=torch.int32, device=device)

    @cached_property
    def arrays(self) -> "SampleArrays":
        """Return the same memory as numpy arrays; CPU only."""
        return SampleArrays(self)


class SampleArrays:
    """View a CPU SampleState as numpy arrays and hold one row of scratch."""

    def __init__(self, state: SampleState) -> None:
        self.words: npt.NDArray[np.int32] = state.words.numpy()
        self.path: npt.NDArray[np.int32] = state.path.numpy()
        self.sampling: npt.NDArray[np.int32] = state.sampling.numpy()
        self.doubles: npt.NDArray[np.float64] = self.sampling.view(np.float64)
        self.singles: npt.NDArray[np.float32] = self.sampling.view(np.float32)
        self.marks: npt.NDArray[np.uint8] = state.prompt_mask.numpy()
        self.counts: npt.NDArray[np.int32] = state.output_counts.numpy()
        self.bias: npt.NDArray[np.float32] = state.logit_bias.numpy()
        self.logprob_ids: npt.NDArray[np.int32] = state.logprob_ids.numpy()
        self.logprob_values: npt.NDArray[np.float32] = state.logprob_values.numpy()
        self.values = np.empty(state.vocab_size, np.float32)
        self.ids = np.empty(state.vocab_size, np.int32)
        self.keys = np.empty(state.vocab_size, np.uint32)
        self.weights = np.empty(state.vocab_size, np.int64)
