"""The steps of a publication that write the verifier's memory, wherever they are launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import torch

from services.kernels import gdn, publish
from services.runtime.buffers import Arenas


class Moved(Protocol):
    """What these steps read: the arenas, the gate weights, the slots on the device."""

    @property
    def arenas(self) -> Arenas:
        """Return the three arenas."""
        ...

    @property
    def a_log(self) -> torch.Tensor:
        """Return the logarithms of the decay rates, [L, Hv] fp32."""
        ...

    @property
    def dt_bias(self) -> torch.Tensor:
        """Return the biases of the step sizes, [L, Hv] fp32."""
        ...

    @property
    def slots(self) -> torch.Tensor:
        """Return the published slots, [B] int32."""
        ...


def recurrent_replay(job: Moved) -> None:
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


def conv_gather(job: Moved) -> None:
    """Gather the last three raw rows into the other set."""
    state = job.arenas.verifier
    publish.conv_gather(
        state["raw_ring"],
        state["conv"],
        state["words"],
        job.arenas.committer["accepted"],
        job.slots,
    )


def kv_scatter(job: Moved) -> None:
    """Copy the path's keys and values from the candidate ring to the pages."""
    state = job.arenas.verifier
    publish.kv_scatter(
        state["kv_ring"],
        state["kv"],
        state["page_table"],
        state["words"],
        job.arenas.committer["accepted"],
        job.slots,
    )


def flip(job: Moved) -> None:
    """Make the other set, the new length and the next cycle the slot's state, in one move."""
    publish.flip(job.arenas.verifier["words"], job.arenas.committer["accepted"], job.slots)


MOVES: Final[dict[str, Callable[[Moved], None]]] = {
    "recurrent_replay": recurrent_replay,
    "conv_gather": conv_gather,
    "kv_scatter": kv_scatter,
    "flip": flip,
}
