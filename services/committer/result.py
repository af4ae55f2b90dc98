"""From a cut path's device words to the answer's checked values."""

from __future__ import annotations

from services.contract.path import AcceptedPath, CutReason, EmittedLogprobs, TokenLogprob
from services.kernels.state_words import (
    PATH_CUT_INDEX,
    PATH_CUT_REASON,
    PATH_EMITTED,
    PATH_NODES,
    PATH_NUM_NODES,
    PATH_PENDING,
)
from services.runtime.arena import Arena
from services.runtime.ring_guard import SlotRecord


def accepted_path(row: list[int], length: int) -> AcceptedPath:
    """Return the path of a cut row, walked on a tree at `length` materialised tokens."""
    count = row[PATH_NUM_NODES]
    return AcceptedPath(
        tuple(row[PATH_NODES : PATH_NODES + count]),
        tuple(row[PATH_EMITTED : PATH_EMITTED + count]),
        row[PATH_PENDING],
        length + count,
        CutReason(row[PATH_CUT_REASON]),
        row[PATH_CUT_INDEX],
    )


def emitted_logprobs(
    state: Arena, record: SlotRecord, path: AcceptedPath
) -> tuple[EmittedLogprobs, ...]:
    """Return the log-probabilities at the row of each emitted token, if the request wants them."""
    wanted = record.sampling.num_logprobs
    if wanted < 0:
        return ()
    count = len(path.emitted_ids)
    ids = state["logprob_ids"][record.ref.slot, :count, : 1 + wanted].tolist()
    values = state["logprob_values"][record.ref.slot, :count, : 1 + wanted].tolist()
    return tuple(_emitted(*pair) for pair in zip(ids, values, strict=True))


def _emitted(ids: list[int], values: list[float]) -> EmittedLogprobs:
    chosen, *top = (TokenLogprob(*pair) for pair in zip(ids, values, strict=True))
    return EmittedLogprobs(chosen, tuple(top))
