"""Lower a draft's logits as the target's own will be: presence, frequency, bias and bans."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from services.contract.limits import MAX_SLAB
from services.contract.sampling import SamplingParams
from services.runtime.graphs import Mirror


class DraftPenalties:
    """Keep what is added to the logits of a slab's drafts; only speed depends on it.

    Counts are those of the last accepted path: a token drafted twice in one tree counts once.
    Shapes  output_counts [S, V] int32, logit_bias [S, V] fp32: the verifier's.
    """

    def __init__(self, output_counts: torch.Tensor, logit_bias: torch.Tensor) -> None:
        shape, device = (MAX_SLAB, output_counts.shape[1]), output_counts.device
        self._output_counts = output_counts
        self._logit_bias = logit_bias
        self._counts = torch.zeros(shape, dtype=torch.int32, device=device)
        self._scaled = torch.zeros(shape, device=device)
        self._added = torch.zeros(shape, device=device)
        self._weights = Mirror(torch.zeros(2 * MAX_SLAB, device=device))

    def stage(self, samplings: Sequence[SamplingParams | None]) -> bool:
        """Send the penalties of a slab to the device; return whether there are any."""
        wanted = [params for params in samplings if params is not None and _changes(params)]
        if not wanted:
            return False
        weights = [0.0 if params is None else params.presence_penalty for params in samplings]
        weights += [0.0 if params is None else params.frequency_penalty for params in samplings]
        self._weights.host[: len(weights)] = torch.tensor(weights)
        self._weights.push(len(weights))
        return True

    def gather(self, slots: torch.Tensor) -> None:
        """Work out what is added to the logits of the slab's sequences."""
        batch = slots.numel()
        counts, scaled = self._counts[:batch], self._scaled[:batch]
        presence, frequency = self._weights.device[: 2 * batch].view(2, batch, 1)
        torch.index_select(self._output_counts, 0, slots, out=counts)
        added = torch.index_select(self._logit_bias, 0, slots, out=self._added[:batch])
        added.sub_(torch.mul(counts, frequency, out=scaled))
        added.sub_(torch.mul(counts.clamp_(max=1), presence, out=scaled))

    def apply(self, logits: torch.Tensor) -> None:
        """Add it to the logits [B, n] of one pass; n <= V where fewer ids are drafted."""
        logits.add_(self._added[: logits.shape[0], : logits.shape[1]])


def _changes(params: SamplingParams) -> bool:
    penalties = params.presence_penalty or params.frequency_penalty
    lists = params.logit_bias or params.allowed_token_ids or params.banned_token_ids
    return bool(penalties or lists)
