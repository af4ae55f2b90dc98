"""The arms of a replay: one engine configuration each, one process each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf

_FIVE_AND_TAIL = json.dumps(list(range(-1, 11)))


@dataclass(frozen=True, slots=True)
class Change:
    """A name of the engine that an arm's process replaces, written module:name."""

    place: str
    value: object


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to generate.

    Args    shape, suffix: drafting. base: the arm it is a variant of, or is compared with.
            changes: what its process replaces. worker: module run as its process.
            python: interpreter, empty for this one. is_exact: its texts equal those of the
            other exact arms.
    """

    name: str
    shape: str = "root"
    suffix: bool = False
    base: str = "plain"
    runtime: str = "inproc"
    changes: tuple[Change, ...] = ()
    worker: str = "benchmarks.replay.worker"
    python: str = ""
    is_exact: bool = True


def _variant(base: str, what: str, place: str = "", value: object = None) -> Arm:
    """Return `base` with one name of the engine replaced."""
    changes = (Change(place, value),) if place else ()
    return Arm(f"{base}-{what}", base, suffix=True, base=base, changes=changes)


def _never(*_: object) -> bool:
    return False


def _always(*_: object) -> bool:
    return True


def _vllm(name: str) -> Arm:
    """Return vLLM with its own drafting: plain, or METHOD-K for drafts of up to K tokens."""
    worker, python = "benchmarks.replay.vllm_worker", ".peers/bin/python"
    return Arm(f"vllm-{name}", worker=worker, python=python, is_exact=False)


_MAIN = (
    Arm("plain"),
    *(Arm(f"chain-{depth}", f"chain-{depth}") for depth in (1, 3, 5, 7)),
    Arm("hydra27", "hydra27", suffix=True),
    Arm("adaptive", "adaptive", suffix=True),
    Arm("hydra27-ray", "hydra27", suffix=True, base="hydra27", runtime="ray"),
)
_PASSES = (
    _variant("hydra27", "3-passes", "services.drafter.shape:DEFAULT_DEPTH", 3),
    Arm("adaptive-3-passes", "adaptive-3", suffix=True, base="adaptive"),
    Arm("adaptive-5-passes", "adaptive-5", suffix=True, base="adaptive"),
    _variant("adaptive", "all-passes", "services.drafter.adaptive:PASS_GAIN", -inf),
)
_ONE_OFF = (
    Arm("hydra27-no-suffix", "hydra27", base="hydra27"),
    Arm("hydra27-no-branches", _FIVE_AND_TAIL, suffix=True, base="hydra27"),
    _variant("hydra27", "no-penalties", "services.drafter.penalties:DraftPenalties.stage", _never),
    _variant("hydra27", "32-rows", "services.kernels.linear:needs_fixed_rows", _always),
    Arm("adaptive-no-suffix", "adaptive", base="adaptive"),
    _variant("adaptive", "no-runner-ups", "services.drafter.adaptive:ADAPTIVE_RANKS", 1),
    _variant("adaptive", "no-learning", "services.drafter.calibration:PRIOR_WEIGHT", 1e12),
    _variant("adaptive", "27-nodes", "services.drafter.stage:ROW_COST", 0.0),
)
_PEERS = (
    Arm("transformers", worker="benchmarks.replay.transformers_worker", is_exact=False),
    *(_vllm(name) for name in ("plain", "mtp-5", "suffix-15")),
)
GROUPS = {"main": _MAIN, "passes": _PASSES, "one-off": _ONE_OFF, "peers": _PEERS}
ARMS = {arm.name: arm for group in GROUPS.values() for arm in group}
DEFAULT_ARMS = ("plain", "chain-5", "hydra27", "adaptive")


def named(text: str) -> tuple[str, ...]:
    """Return the arms of a comma-separated list of arms and groups; `all` is every arm.

    Raises  KeyError with a name that is neither.
    """
    names: dict[str, None] = {}
    for word in text.split(","):
        group = tuple(ARMS.values()) if word == "all" else GROUPS.get(word) or (ARMS[word],)
        names.update(dict.fromkeys(arm.name for arm in group))
    return tuple(names)
