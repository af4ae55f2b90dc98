"""The five named steps of a publication and the flip that makes them count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from services.kernels import accept as acceptance
from services.kernels import gdn
from services.kernels import publish as moves
from services.kernels.state_words import PATH_PENDING
from services.runtime.buffers import Arenas
from services.runtime.failpoints import reach


@dataclass(frozen=True, slots=True)
class Publication:
    """What every step reads: the arenas, the gate weights, and the slots to publish.

    Shapes  a_log, dt_bias [L, Hv] fp32; slots [B] int32.
    """

    arenas: Arenas
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    slots: torch.Tensor


Step = Callable[[Publication], None]


def accept(job: Publication) -> None:
    """Check the verifier's paths and cut them where their sequences end."""
    state, own = job.arenas.verifier, job.arenas.committer
    acceptance.accept(
        state["words"],
        state["path"],
        own["limits"],
        job.arenas.drafter["tree_tables"],
        own["next_root"],
        job.slots,
        own["accepted"],
    )


def recurrent_replay(job: Publication) -> None:
    """Advance the recurrent rows along the path, from the active set into the other."""
    state = job.arenas.verifier
    gdn.replay(
        state["mixed_ring"],
        state["ab_ring"],
        job.a_log,
        job.dt_bias,
        state["recurrent"],
        state["words"],
        job.arenas.committer["accepted"],
        job.slots,
    )


def conv_gather(job: Publication) -> None:
    """Gather the last three raw rows into the other set."""
    state = job.arenas.verifier
    moves.conv_gather(
        state["raw_ring"],
        state["conv"],
        state["words"],
        job.arenas.committer["accepted"],
        job.slots,
    )


def kv_scatter(job: Publication) -> None:
    """Copy the path's keys and values from the candidate ring to the pages."""
    state = job.arenas.verifier
    moves.kv_scatter(
        state["kv_ring"],
        state["kv"],
        state["page_table"],
        state["words"],
        job.arenas.committer["accepted"],
        job.slots,
    )


def next_root(job: Publication) -> None:
    """Keep the pending token: the only root that the next tree may have."""
    own = job.arenas.committer
    for slot in job.slots.tolist():
        own["next_root"][slot] = own["accepted"][slot, PATH_PENDING]


def flip(job: Publication) -> None:
    """Make the other set, the new length and the next cycle the slot's state, in one move."""
    moves.flip(job.arenas.verifier["words"], job.arenas.committer["accepted"], job.slots)


STEPS: Final[dict[str, Step]] = {
    "accept": accept,
    "recurrent_replay": recurrent_replay,
    "conv_gather": conv_gather,
    "kv_scatter": kv_scatter,
    "next_root": next_root,
    "flip": flip,
}


def run_steps(job: Publication, steps: dict[str, Step], names: tuple[str, ...]) -> None:
    """Run named steps in order; each may be repeated until the flip."""
    for name in names:
        reach(f"committer.{name}")
        steps[name](job)
