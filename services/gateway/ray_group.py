"""Build the three stages of one checkpoint as Ray actors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from services.contract.config import EngineConfig
from services.model.checkpoint import Checkpoint
from services.runtime.ray_group import RayGroup

Progress = Callable[[str, int, int], None]


def build_ray_group(config: EngineConfig, progress: Progress | None = None) -> RayGroup:
    """Start or join Ray, place the actors, load and wire them.

    Raises  CheckpointError for a folder that is not what it says; UnavailableError where no
            host has room or the stages cannot share memory.
    """
    from services.committer.actor import CommitterActor
    from services.drafter.actor import DrafterActor
    from services.runtime.ray_session import RaySession
    from services.verifier.actor import VerifierActor

    model = Checkpoint.open(Path(config.model)).config
    kinds = {"drafter": DrafterActor, "verifier": VerifierActor, "committer": CommitterActor}
    session = RaySession(config.device, groups=1)
    try:
        group = RayGroup(model, config, kinds, session)
    except BaseException:
        session.close()
        raise
    if progress is not None:
        progress("stages", len(kinds), len(kinds))
    return group
