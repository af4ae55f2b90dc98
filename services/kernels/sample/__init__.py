"""Sampling on tree rows: the token plain decoding would draw at each row, and the walk.

A row's draw depends on its own logits, its slot's values, counts and seed, and the tokens of
its own root-to-node path: nothing else. Order of processing: bias and bans, min_tokens,
repetition, frequency and presence penalties, temperature, min-p, top-k (boundary ties kept),
top-p (ties by id). Greedy takes the lowest id of the maximum; so does min_p = 1. A NaN logit
counts as -inf; a row with an infinite maximum is greedy and has no log-probabilities. The token
drawn at a row of depth d has position committed_length + d + 1; its 64 random bits are
Philox4x32-10 of (seed; position, choice).
"""

import torch

from services.kernels.dispatch import backend
from services.kernels.sample.state import SampleState
from services.kernels.tree_tables import TableViews

__all__ = ["SampleState", "accept", "draw", "walk"]


def draw(
    logits: torch.Tensor,
    tables: TableViews,
    state: SampleState,
    out: torch.Tensor,
    random_words: torch.Tensor | None = None,
) -> None:
    """Write the token of every live row to `out` [B, 32].

    Shapes  logits [B, 32, V] fp32; tables of B trees, each naming its slot.
    Args    random_words: [B, 32] int64 random bits to use instead of the generator's.
    """
    backend("sample", logits.device.type).draw(logits, tables, state, out, random_words)


def walk(logits: torch.Tensor, tables: TableViews, state: SampleState) -> None:
    """Walk each tree from its root: draw, descend while a child carries the token, else stop.

    Writes  state.path (nodes, emitted tokens, pending token; no cut), the log-probabilities of
            the emitted tokens' own rows, the emitted tokens' counts.
    Numbers a forced tree is taken to its end whatever is drawn on the way.
    """
    backend("sample", logits.device.type).walk(logits, tables, state)


def accept(
    path: torch.Tensor,
    sampling: torch.Tensor,
    prompt_mask: torch.Tensor,
    slots: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Copy the slots' paths to `out` and cut each at the first token that ends its sequence.

    Shapes  path, out [S, 64], sampling [S, 32], slots [B] int32; prompt_mask [S, V] uint8.
    Numbers the earliest token wins; at one token an end token of the model comes before a stop
            id, then the token budget, then the end of the context. The cutting token is kept,
            emitted and pending; nodes after the one that drew it are dropped.
    """
    backend("sample", path.device.type).accept(path, sampling, prompt_mask, slots, out)
