"""The verifier in a process of its own."""

from __future__ import annotations

import torch

from services.model.products import prepare_products
from services.model.weights import TargetWeights, load_target
from services.runtime.buffers import Arenas, has_narrow_products, model_dtype
from services.runtime.orders import OrderLoop, Publisher
from services.runtime.owners import WEIGHTS, new_bytes, weights_bytes
from services.runtime.ray_session import ray
from services.runtime.stage_host import Loaded, StageHost, end_process
from services.verifier.stage import VerifierStage


class VerifierHost(StageHost):
    """Own the target's weights and lend them."""

    name = "verifier"

    def load_weights(self, loaded: Loaded) -> None:
        """Read the target into memory that the other stages may open."""
        config = loaded.config
        size = weights_bytes(loaded.model, config)
        self._block = new_bytes(size, config.device, loaded.paths.get(WEIGHTS, ""))
        load_target(loaded.checkpoint, model_dtype(config), config.device, block=self._block)

    def lent_weights(self) -> torch.Tensor:
        """Return the block of the target's weights."""
        return self._block

    def build(
        self, loaded: Loaded, arenas: Arenas, lent: TargetWeights, epoch: int
    ) -> VerifierStage:
        """Return the verifier stage."""
        prepare_products(lent, None, has_narrow_products(loaded.config))
        return VerifierStage(loaded.model, lent, arenas, loaded.config, epoch)

    def take_orders(
        self, loaded: Loaded, arenas: Arenas, lent: TargetWeights, name: str
    ) -> OrderLoop:
        """Launch publications on the committer's order."""
        publisher = Publisher(lent, arenas)
        publisher.warmup()
        return OrderLoop(name, publisher, loaded.config.threads, end_process)


VerifierActor = ray.remote(VerifierHost)
