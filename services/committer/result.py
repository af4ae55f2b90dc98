"""From a cut path's device words to the answer's checked values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from services.contract.errors import (
    ContractError,
    InvalidField,
    RepeatedCycleError,
    StaleEpochError,
)
from services.contract.path import AcceptedPath, CutReason, EmittedLogprobs, TokenLogprob
from services.kernels.accept import (
    OTHER_CYCLE,
    OTHER_ROOT,
    OTHER_TREE,
    PATH_STATUS,
    STALE_EPOCH,
    TAKEN,
)
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

_REFUSALS: Final[dict[int, tuple[type[ContractError], str]]] = {
    STALE_EPOCH: (StaleEpochError, "the path is of another epoch"),
    OTHER_CYCLE: (RepeatedCycleError, "the path is not of the slot's next cycle"),
    OTHER_TREE: (InvalidField, "the path is not a root path of the slot's tree"),
    OTHER_ROOT: (InvalidField, "the tree's root is not the pending token"),
}


def refuse_untaken(rows: Sequence[list[int]]) -> None:
    """Raise the contract error of the first path that the check did not take."""
    for row in rows:
        if row[PATH_STATUS] != TAKEN:
            kind, text = _REFUSALS[row[PATH_STATUS]]
            raise kind("PUBLICATION", f"{text}; nothing was published", "path")


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
