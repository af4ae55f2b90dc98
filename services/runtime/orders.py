"""Publication by order, where only the owner of the target state may write it (cuda_ipc_ro).

The committer still cuts, checks and keeps the accepted paths in its own memory. It then sends the
slots to the verifier's process, which launches the other steps on its own memory and answers when
the device has done them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch

from services.contract.errors import UnavailableError
from services.contract.limits import MAX_SLAB
from services.kernels.threads import use_threads
from services.model.weights import TargetWeights
from services.runtime.buffers import Arenas
from services.runtime.failpoints import reach
from services.runtime.graphs import Graphs, Mirror, finish
from services.runtime.log import get_logger
from services.runtime.moves import MOVES
from services.runtime.sockets import Channel, Listener, RingClosedError

_LOG = get_logger("runtime.orders")
_ACCEPT_SECONDS: Final = 60.0
_ORDER_SECONDS: Final = 60.0
_JOIN_SECONDS: Final = 5.0
_DONE: Final = b"done"


@dataclass(frozen=True, slots=True)
class OrderedMoves:
    """What the moves of one order read (see Moved)."""

    arenas: Arenas
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    slots: torch.Tensor


class Publisher:
    """Run the moves in the process that owns the target state; they are graphs on a GPU."""

    def __init__(self, weights: TargetWeights, arenas: Arenas) -> None:
        self._arenas, self._weights = arenas, weights
        self._device = arenas.verifier.storage.device
        self._slots = Mirror(torch.zeros(MAX_SLAB, dtype=torch.int32, device=self._device))
        self._graphs = Graphs(self._device)

    def warmup(self) -> None:
        """Capture every slab size, on paths that hold nothing."""
        if self._device.type == "cuda":
            num_slots = self._arenas.verifier["words"].shape[0]
            for batch in range(1, min(MAX_SLAB, num_slots) + 1):
                self.publish(range(batch))

    def publish(self, slots: range | list[int]) -> None:
        """Move the accepted paths of these slots into their state; return when it is done."""
        self._slots.write(list(slots))
        self._graphs.run(("moves", len(slots)), partial(self._move, len(slots)))
        finish(self._device)

    def close(self) -> None:
        """Drop the references to device memory."""
        self._graphs.clear()
        del self._slots, self._arenas, self._weights

    def _move(self, count: int) -> None:
        gates = self._weights.a_log, self._weights.dt_bias
        job = OrderedMoves(self._arenas, *gates, self._slots.push(count))
        for name, move in MOVES.items():
            reach(f"committer.{name}")
            move(job)


class OrderLoop:
    """Take orders on a thread of their own until the committer hangs up.

    Args    on_defect: called on the thread with what a publication raised.
    """

    def __init__(
        self,
        name: str,
        publisher: Publisher,
        threads: int,
        on_defect: Callable[[BaseException], None],
    ) -> None:
        self._listener, self._publisher = Listener(name), publisher
        self._threads, self._on_defect = threads, on_defect
        self._channel: Channel | None = None
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._listener.close()
        if self._channel is not None:
            self._channel.close()
        self._thread.join(_JOIN_SECONDS)
        if not self._thread.is_alive():
            self._publisher.close()

    def _run(self) -> None:
        use_threads(self._threads)
        try:
            self._channel = self._listener.accept(_ACCEPT_SECONDS)
            while True:
                data = self._channel.receive()
                self._publisher.publish(np.frombuffer(data, np.int32).tolist())
                self._channel.send(_DONE)
        except RingClosedError:
            _LOG.info("orders ended")
        except BaseException as error:
            _LOG.error("publication broke", kind=type(error).__name__)
            self._on_defect(error)


class Orders:
    """The committer's end: order a publication and wait until it is done."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __call__(self, slots: tuple[int, ...]) -> None:
        """Return when the slots are published.

        Raises  RuntimeError if the verifier died or hangs: what it did is unknown, so this
                stage must end too.
        """
        try:
            self._channel.send(np.array(slots, np.int32).tobytes())
            self._channel.receive(_ORDER_SECONDS)
        except UnavailableError as error:
            raise RuntimeError("the verifier did not answer an order") from error

    def close(self) -> None:
        """Hang up."""
        self._channel.close()
