"""The table of planted faults: what is broken, in which step, and what must see it.

A fault breaks one cycle of one sequence by replacing a named step of the committer, or what the
verifier clears. The table never shrinks; a new bug adds a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from services.committer.publish import STEPS, Publication, Step
from services.kernels.state_words import (
    ACTIVE_SET,
    PATH_CYCLE,
    PATH_NODES,
    PATH_NUM_NODES,
    PATH_PENDING,
)
from services.kernels.tree_tables import TOKENS
from services.runtime.arena import Arena
from services.runtime.buffers import Arenas
from services.runtime.stage import StageMessage
from tests.ring import Ring

DIGEST, ROOT = "digest", "root identity"
Plant = Callable[[Ring], None]


@dataclass(frozen=True)
class Fault:
    """One planted fault.

    Args    needs: how the broken cycle must look: "accept" at least one draft accepted,
            "sibling" the last accepted node has a sibling, "root" a tree of the root alone,
            "reuse" the first cycle of a slot's second owner.
    """

    name: str
    plant: Plant
    seen_by: str = DIGEST
    needs: str = "accept"


class Overlay:
    """An arena in which some tensors are replaced by others."""

    def __init__(self, arena: Arena, **tensors: torch.Tensor) -> None:
        self._arena, self._tensors = arena, tensors

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._tensors[name] if name in self._tensors else self._arena[name]


def with_path(job: Publication, change: Callable[[torch.Tensor], None]) -> Publication:
    """Return the job with another accepted path, for one step alone."""
    accepted = job.arenas.committer["accepted"].clone()
    for slot in job.slots.tolist():
        change(accepted[slot])
    own = Overlay(job.arenas.committer, accepted=accepted)
    return replace(job, arenas=Arenas(job.arenas.verifier, job.arenas.drafter, own))


def with_state(job: Publication, **tensors: torch.Tensor) -> Publication:
    """Return the job with other verifier tensors, for one step alone."""
    state = Overlay(job.arenas.verifier, **tensors)
    arenas = Arenas(state, job.arenas.drafter, job.arenas.committer)
    return replace(job, arenas=arenas)


def skip(job: Publication) -> None:
    """Do nothing."""


def put(ring: Ring, **steps: Step) -> None:
    """Replace named steps for the next cycle."""
    ring.committer.steps = {**STEPS, **steps}


def conv_gather(ring: Ring) -> None:
    """F1: the conv rows are not gathered."""
    put(ring, conv_gather=skip)


def replay(ring: Ring) -> None:
    """F2: the recurrent rows are not advanced."""
    put(ring, recurrent_replay=skip)


def kv_remap(ring: Ring) -> None:
    """F3: keys and values come from the node beside each accepted one."""

    def shift(path: torch.Tensor) -> None:
        nodes = path[PATH_NODES : PATH_NODES + int(path[PATH_NUM_NODES])]
        nodes.copy_((nodes + 1) % 32)

    put(ring, kv_scatter=lambda job: STEPS["kv_scatter"](with_path(job, shift)))


def stale_root(ring: Ring) -> None:
    """F4: the next root is the root of this cycle again."""

    def stale(job: Publication) -> None:
        own = job.arenas.committer
        for slot in job.slots.tolist():
            cycle = int(own["accepted"][slot, PATH_CYCLE])
            token = job.arenas.drafter["tree_tables"][slot, TOKENS]
            own["next_root"][slot, (cycle + 1) & 1] = token

    put(ring, next_root=stale)


def sibling(ring: Ring) -> None:
    """F5: the state of a sibling of the last accepted node is published."""

    def published(step: Step) -> Step:
        def run(job: Publication) -> None:
            parents = list(job.trees[0].parents)

            def turn(path: torch.Tensor) -> None:
                last = PATH_NODES + int(path[PATH_NUM_NODES]) - 1
                node = int(path[last])
                others = [i for i, p in enumerate(parents) if p == parents[node] and i != node]
                path[last] = others[0]

            step(with_path(job, turn))

        return run

    names = ("recurrent_replay", "conv_gather", "kv_scatter")
    put(ring, **{name: published(STEPS[name]) for name in names})


def padding(ring: Ring) -> None:
    """F6: one padding row advances the recurrent state after the accepted nodes."""

    def lengthen(path: torch.Tensor) -> None:
        count = int(path[PATH_NUM_NODES])
        path[PATH_NODES + count] = 0
        path[PATH_NUM_NODES] = count + 1

    put(ring, recurrent_replay=lambda job: STEPS["recurrent_replay"](with_path(job, lengthen)))


def pending_twice(ring: Ring) -> None:
    """F7: the pending token is materialised twice."""

    def repeat(path: torch.Tensor) -> None:
        count = int(path[PATH_NUM_NODES])
        nodes = path[PATH_NODES : PATH_NODES + count].clone()
        path[PATH_NODES + 1 : PATH_NODES + count + 1] = nodes
        path[PATH_NUM_NODES] = count + 1

    put(ring, recurrent_replay=lambda job: STEPS["recurrent_replay"](with_path(job, repeat)))


def rings_swapped(ring: Ring) -> None:
    """F8: replay reads the operands of the first two layers the wrong way round."""

    def run(job: Publication) -> None:
        mixed = job.arenas.verifier["mixed_ring"].clone()
        mixed[:, [0, 1]] = mixed[:, [1, 0]]
        STEPS["recurrent_replay"](with_state(job, mixed_ring=mixed))

    put(ring, recurrent_replay=run)


def older_state(ring: Ring) -> None:
    """F9: a cycle without drafts advances the state before the last publication."""

    def run(job: Publication) -> None:
        recurrent = job.arenas.verifier["recurrent"]
        words = job.arenas.verifier["words"]
        for slot in job.slots.tolist():
            active = int(words[slot, ACTIVE_SET])
            newer = recurrent[slot, active].clone()
            recurrent[slot, active] = recurrent[slot, 1 - active]
            STEPS["recurrent_replay"](job)
            recurrent[slot, active] = newer

    put(ring, recurrent_replay=run)


def row_not_cleared(ring: Ring) -> None:
    """F10: a slot's next owner starts from the recurrent rows of the last one."""
    recurrent = ring.arenas.verifier["recurrent"]
    kept, honest = recurrent.clone(), ring.verifier.admit

    def admit(message: StageMessage) -> StageMessage:
        reply = honest(message)
        recurrent.copy_(kept)
        return reply

    ring.verifier.admit = admit


FAULTS = (
    Fault("conv_gather", conv_gather),
    Fault("replay", replay),
    Fault("kv_remap", kv_remap),
    Fault("stale_root", stale_root, ROOT),
    Fault("sibling", sibling, needs="sibling"),
    Fault("padding", padding),
    Fault("pending_twice", pending_twice),
    Fault("rings_swapped", rings_swapped),
    Fault("older_state", older_state, needs="root"),
    Fault("row_not_cleared", row_not_cleared, needs="reuse"),
)


def next_root(ring: Ring, slot: int) -> int:
    """Return the root that the committer expects of the slot's next tree."""
    cycle = ring.rows[slot].cycle
    return int(ring.arenas.committer["next_root"][slot, cycle & 1])


def pending(ring: Ring, slot: int) -> int:
    """Return the token that the last published path left pending."""
    return int(ring.arenas.committer["accepted"][slot, PATH_PENDING])
