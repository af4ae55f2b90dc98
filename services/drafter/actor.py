"""The drafter in a process of its own."""

from __future__ import annotations

from services.drafter.build import build_drafter
from services.drafter.stage import DrafterStage
from services.model.products import prepare_draft_products
from services.model.weights import MtpWeights, TargetWeights, load_mtp
from services.runtime.buffers import Arenas, has_narrow_products, model_dtype
from services.runtime.ray_session import ray
from services.runtime.stage_host import Loaded, StageHost


class DrafterHost(StageHost):
    """Own the MTP block; read the verifier's embedding, head and hidden rows."""

    name = "drafter"

    def load_weights(self, loaded: Loaded) -> None:
        """Read the MTP block, which nobody else needs."""
        config = loaded.config
        self._mtp: MtpWeights | None = load_mtp(
            loaded.checkpoint, model_dtype(config), config.device
        )

    def build(
        self, loaded: Loaded, arenas: Arenas, lent: TargetWeights, epoch: int
    ) -> DrafterStage:
        """Return the drafter stage."""
        config, tables = loaded.config, (lent.embedding, lent.head)
        prepare_draft_products(lent.head, self._mtp, has_narrow_products(config))
        return build_drafter(config, loaded.model, self._mtp, tables, arenas, epoch)


DrafterActor = ray.remote(DrafterHost)
