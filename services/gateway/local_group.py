"""Build the three stages of one checkpoint in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from services.committer.stage import CommitterStage
from services.contract.config import EngineConfig
from services.drafter.build import build_drafter
from services.kernels.threads import use_threads
from services.kernels.warmup import compile_cpu_kernels
from services.model.checkpoint import Checkpoint
from services.model.products import prepare_products
from services.model.weights import load_mtp, load_target
from services.runtime.buffers import has_narrow_products, make_arenas, model_dtype
from services.runtime.local import LocalGroup
from services.runtime.stage import RingStage
from services.verifier.stage import VerifierStage

Progress = Callable[[str, int, int], None]
FIRST_EPOCH = 1


def build_local_group(config: EngineConfig, progress: Progress | None = None) -> LocalGroup:
    """Load the checkpoint, allocate the arenas, build and warm the stages.

    Args    progress: called with (what is loaded, bytes done, bytes in all).
    Raises  CheckpointError for a folder that is not what it says; UnavailableError where the
            rows of a matrix product see each other.
    """
    use_threads(config.threads)
    checkpoint = Checkpoint.open(Path(config.model))
    model, dtype = checkpoint.config, model_dtype(config)
    target = load_target(checkpoint, dtype, config.device, _named(progress, "target"))
    mtp = load_mtp(checkpoint, dtype, config.device, _named(progress, "mtp"))
    prepare_products(target, mtp, has_narrow_products(config))
    lent = target.embedding, target.head

    def build(epoch: int) -> tuple[RingStage, ...]:
        arenas = make_arenas(model, config)
        return (
            build_drafter(config, model, mtp, lent, arenas, epoch),
            VerifierStage(model, target, arenas, config, epoch),
            CommitterStage(target, arenas, config, epoch),
        )

    if config.device == "cpu":
        compile_cpu_kernels()
    group = LocalGroup(model, build(FIRST_EPOCH), FIRST_EPOCH, build)
    group.warmup()
    return group


def _named(progress: Progress | None, name: str) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(name, done, total)

    return report
