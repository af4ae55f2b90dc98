"""Build the three stages of one checkpoint as Ray actors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from services.contract.config import EngineConfig
from services.kernels.warmup import compile_cpu_kernels
from services.model.checkpoint import Checkpoint
from services.runtime.ray_group import RayGroup

Progress = Callable[[str, int, int], None]


def build_ray_groups(config: EngineConfig, progress: Progress | None = None) -> list[RayGroup]:
    """Start or join Ray, place the actors of every group, load and wire them.

    Raises  CheckpointError for a folder that is not what it says; UnavailableError where no
            host has room or the stages cannot share memory.
    """
    from services.committer.actor import CommitterActor
    from services.drafter.actor import DrafterActor
    from services.runtime.ray_session import RaySession
    from services.verifier.actor import VerifierActor

    if config.device == "cpu":
        compile_cpu_kernels()  # kept on disk, where the actors of this host find them
    model = Checkpoint.open(Path(config.model)).config
    kinds = {"drafter": DrafterActor, "verifier": VerifierActor, "committer": CommitterActor}
    session = RaySession(config.device, config.groups, config.mps)
    groups: list[RayGroup] = []
    try:
        for index in range(config.groups):
            groups.append(RayGroup(model, config, kinds, session))
            if progress is not None:
                progress("stage groups", index + 1, config.groups)
    except BaseException:
        for group in groups:
            group.close()
        session.end()
        raise
    return groups
