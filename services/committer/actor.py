"""The committer in a process of its own."""

from __future__ import annotations

from services.committer.stage import CommitterStage
from services.model.weights import TargetWeights
from services.runtime.buffers import Arenas
from services.runtime.orders import Orders
from services.runtime.ray_session import ray
from services.runtime.sockets import connect
from services.runtime.stage_host import CONNECT_SECONDS, Loaded, StageHost


class CommitterHost(StageHost):
    """Own the cut paths and next roots; read the verifier's gate vectors."""

    name = "committer"

    def load_weights(self, loaded: Loaded) -> None:
        """Read nothing: the committer has no weights."""

    def build(
        self, loaded: Loaded, arenas: Arenas, lent: TargetWeights, epoch: int
    ) -> CommitterStage:
        """Return the committer stage."""
        self._built = CommitterStage(lent, arenas, loaded.config, epoch, self.is_ordered)
        return self._built

    def connect_orders(self, name: str) -> Orders:
        """Order publications from the verifier's process."""
        self._built.order = orders = Orders(connect(name, CONNECT_SECONDS))
        return orders


CommitterActor = ray.remote(CommitterHost)
