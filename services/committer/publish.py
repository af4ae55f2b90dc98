"""The five named steps of a publication and the flip that makes them count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from services.committer.check import refuse_foreign
from services.contract import pb
from services.kernels import sample
from services.kernels.state_words import PATH_CYCLE, PATH_PENDING
from services.runtime.buffers import Arenas
from services.runtime.failpoints import reach
from services.runtime.graphs import Graphs, Mirror, finish
from services.runtime.moves import conv_gather, flip, kv_scatter, recurrent_replay


@dataclass(frozen=True, slots=True)
class Publication:
    """What every step reads: the arenas, the gate weights, the slots and their trees.

    Shapes  a_log, dt_bias [L, Hv] fp32; slots [B] int32, on the device once `accept` has pushed
            slot_ids; accepted, words, roots: host mirrors of the tensors that `accept` checks;
            graphs: what was captured of the steps on a GPU, by number of slots.
    """

    arenas: Arenas
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    slot_mirror: Mirror
    slot_ids: tuple[int, ...]
    accepted: Mirror
    words: Mirror
    roots: Mirror
    trees: tuple[pb.tree_pb2.TreeDescriptor, ...]
    graphs: Graphs

    @property
    def slots(self) -> torch.Tensor:
        """Return the slots on the device."""
        return self.slot_mirror.device[: len(self.slot_ids)]


Step = Callable[[Publication], None]
Order = Callable[[tuple[int, ...]], None]


def accept(job: Publication) -> None:
    """Cut the verifier's paths where their sequences end, and check them.

    Raises  the contract's error for a path of another epoch, cycle, tree or root.
    """
    mirrors = job.accepted, job.words, job.roots
    job.graphs.run(("accept", len(job.slot_ids)), lambda: cut_and_fetch(job))
    finish(job.slots.device)
    for slot, tree in zip(job.slot_ids, job.trees, strict=True):
        path, words, roots = (mirror.host[slot].tolist() for mirror in mirrors)
        refuse_foreign(path, words, tree, roots[tree.cycle & 1])


def cut_and_fetch(job: Publication) -> None:
    """Cut the paths and start the copies of what `accept` checks to the host."""
    job.slot_mirror.push(len(job.slot_ids))
    state = job.arenas.verifier
    limits = state["sampling"], state["prompt_mask"]
    sample.accept(state["path"], *limits, job.slots, job.arenas.committer["accepted"])
    for mirror in (job.accepted, job.words, job.roots):
        mirror.fetch()


def next_root(job: Publication) -> None:
    """Keep the pending token: the only root that the next cycle's tree may have."""
    own = job.arenas.committer
    paths = own["accepted"].index_select(0, job.slots)
    index = job.slots.long() * 2 + ((paths[:, PATH_CYCLE] + 1) & 1)
    own["next_root"].view(-1).index_copy_(0, index, paths[:, PATH_PENDING])


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
    reach("committer.accept")
    steps["accept"](job)
    run_published(job, steps)


def run_ordered(job: Publication, steps: dict[str, Step], order: Order) -> None:
    """Run the steps in this owner's memory, and have the others run where the state lies."""
    reach("committer.accept")
    steps["accept"](job)
    reach("committer.next_root")
    job.graphs.run(("next_root", len(job.slot_ids)), lambda: steps["next_root"](job))
    order(job.slot_ids)


def run_published(job: Publication, steps: dict[str, Step]) -> None:
    """Run the steps after `accept`, whose checks need the host; on a GPU they are one graph."""

    def publish() -> None:
        for name in list(STEPS)[1:]:
            reach(f"committer.{name}")
            steps[name](job)

    job.graphs.run(("publish", len(job.slot_ids)), publish)
