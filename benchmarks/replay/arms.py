"""The arms of a replay: one engine configuration each, one process each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to generate.

    Args    worker: module run as the arm's process. python: interpreter, empty for this one.
            shape, drafter, suffix: drafting. is_exact: its texts equal those of the other exact
            arms.
    """

    name: str
    shape: str = "root"
    drafter: str = "mtp"
    suffix: bool = False
    runtime: str = "inproc"
    worker: str = "benchmarks.replay.worker"
    python: str = ""
    is_exact: bool = True


def _chain(depth: int) -> Arm:
    return Arm(f"chain-{depth}", f"chain-{depth}")


ARMS = {
    arm.name: arm
    for arm in (
        Arm("plain"),
        *(_chain(depth) for depth in (1, 3, 5, 7)),
        Arm("hydra27", "hydra27", suffix=True),
        Arm("adaptive", "adaptive", suffix=True),
        Arm("hydra27-nosuffix", "hydra27"),
        Arm("adaptive-nosuffix", "adaptive"),
        Arm("hydra27-ray", "hydra27", suffix=True, runtime="ray"),
        Arm(
            "transformers",
            worker="benchmarks.replay.transformers_worker",
            is_exact=False,
        ),
        Arm(
            "vllm-plain",
            worker="benchmarks.replay.vllm_worker",
            python=".peers/bin/python",
            is_exact=False,
        ),
        Arm(
            "vllm-mtp-5",
            shape="chain-5",
            worker="benchmarks.replay.vllm_worker",
            python=".peers/bin/python",
            is_exact=False,
        ),
    )
}
DEFAULT_ARMS = ("plain", "chain-5", "hydra27", "adaptive")
