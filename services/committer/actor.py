"""The committer in a process of its own."""

from __future__ import annotations

from services.committer.stage import CommitterStage
from services.model.weights import TargetWeights
from services.runtime.buffers import Arenas
from services.runtime.ray_session import ray
from services.runtime.stage_host import Loaded, StageHost


class CommitterHost(StageHost):
    """Own the cut paths and next roots; read the verifier's gate vectors."""

    name = "committer"

    def load_weights(self, loaded: Loaded) -> None:
        """Read nothing: the committer has no weights."""

    def build(
        self, loaded: Loaded, arenas: Arenas, lent: TargetWeights, epoch: int
    ) -> CommitterStage:
        """Return the committer stage."""
        return CommitterStage(lent, arenas, loaded.config, epoch)


CommitterActor = ray.remote(CommitterHost)
