"""The five named steps of a publication and the flip that makes them count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from services.committer.check import refuse_foreign
from services.contract import pb
from services.kernels import gdn, sample
from services.kernels import publish as moves
from services.kernels.state_words import PATH_CYCLE, PATH_PENDING
from services.runtime.buffers import Arenas
from services.runtime.failpoints import reach


@dataclass(frozen=True, slots=True)
class Publication:
    """What every step reads: the arenas, the gate weights, the slots and their trees.

    Shapes  a_log, dt_bias [L, Hv] fp32; slots [B] int32.
    """

    arenas: Arenas
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    slots: torch.Tensor
    trees: tuple[pb.tree_pb2.TreeDescriptor, ...]


Step = Callable[[Publication], None]


def accept(job: Publication) -> None:
    """Cut the verifier's paths where their sequences end, and check them.

    Raises  the contract's error for a path of another epoch, cycle, tree or root.
    """
    state, own = job.arenas.verifier, job.arenas.committer
    limits = state["sampling"], state["prompt_mask"]
    sample.accept(state["path"], *limits, job.slots, own["accepted"])
    for slot, tree in zip(job.slots.tolist(), job.trees, strict=True):
        root = int(own["next_root"][slot, tree.cycle & 1])
        refuse_foreign(own["accepted"][slot].tolist(), state["words"][slot].tolist(), tree, root)


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
    """Keep the pending token: the only root that the next cycle's tree may have."""
    own = job.arenas.committer
    for slot in job.slots.tolist():
        path = own["accepted"][slot]
        own["next_root"][slot, (int(path[PATH_CYCLE]) + 1) & 1] = path[PATH_PENDING]


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


def run_steps(job: Publication, steps: dict[str, Step]) -> None:
    """Run the steps in order; until the flip each may be repeated."""
    for name in STEPS:
        reach(f"committer.{name}")
        steps[name](job)
