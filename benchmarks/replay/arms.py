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

    Args    shape, suffix: drafting. base: the arm it is a variant of. about: how it differs.
            changes: what its process replaces. worker: module run as its process.
            python: interpreter, empty for this one. is_exact: its texts equal those of the
            other exact arms.
    """

    name: str
    shape: str = "root"
    suffix: bool = False
    base: str = "plain"
    about: str = ""
    runtime: str = "inproc"
    changes: tuple[Change, ...] = ()
    worker: str = "benchmarks.replay.worker"
    python: str = ""
    is_exact: bool = True


def _variant(base: str, what: str, about: str, place: str, value: object) -> Arm:
    """Return `base` with one name of the engine replaced."""
    changes = (Change(place, value),)
    return Arm(f"{base}-{what}", base, suffix=True, base=base, about=about, changes=changes)


def _shaped(base: str, what: str, about: str, shape: str, suffix: bool = True) -> Arm:
    """Return `base` with another shape, or without suffixes."""
    return Arm(f"{base}-{what}", shape, suffix, base, about)


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
    Arm("hydra27-ray", "hydra27", True, "hydra27", "each stage a Ray actor", runtime="ray"),
)
_PASSES = (
    _variant(
        "hydra27",
        "3-passes",
        "three MTP passes; suffixes fill the deeper spine and its siblings",
        "services.drafter.shape:DEFAULT_DEPTH",
        3,
    ),
    _shaped("adaptive", "3-passes", "at most three MTP passes (of eight)", "adaptive-3"),
    _shaped("adaptive", "5-passes", "at most five MTP passes (of eight)", "adaptive-5"),
    _variant(
        "adaptive",
        "all-passes",
        "always eight MTP passes: none is left out for its small gain",
        "services.drafter.adaptive:PASS_GAIN",
        -inf,
    ),
)
_ONE_OFF = (
    _shaped("hydra27", "no-suffix", "MTP drafts alone", "hydra27", suffix=False),
    _shaped("hydra27", "no-branches", "its spine and tail alone: 11 candidates", _FIVE_AND_TAIL),
    _variant(
        "hydra27",
        "no-penalties",
        "drafts do not foresee the penalties",
        "services.drafter.penalties:DraftPenalties.stage",
        _never,
    ),
    _variant(
        "hydra27",
        "32-rows",
        "32 rows a forward, padding too, as on a GPU",
        "services.kernels.linear:needs_fixed_rows",
        _always,
    ),
    _shaped("adaptive", "no-suffix", "MTP drafts alone", "adaptive", suffix=False),
    _variant(
        "adaptive",
        "no-runner-ups",
        "the best token of an MTP pass alone",
        "services.drafter.adaptive:ADAPTIVE_RANKS",
        1,
    ),
    _variant(
        "adaptive",
        "no-learning",
        "acceptance is never learned, only assumed",
        "services.drafter.calibration:PRIOR_WEIGHT",
        1e12,
    ),
    _variant(
        "adaptive",
        "27-nodes",
        "rows count as free: the tree always grows to 27",
        "services.drafter.stage:ROW_COST",
        0.0,
    ),
)
_PEERS = (
    Arm("transformers", worker="benchmarks.replay.transformers_worker", is_exact=False),
    *(_vllm(name) for name in ("plain", "mtp-5", "suffix-15")),
)
GROUPS = {"main": _MAIN, "passes": _PASSES, "one-off": _ONE_OFF, "peers": _PEERS}
ARMS = {arm.name: arm for group in GROUPS.values() for arm in group}
DEFAULT_ARMS = ("plain", "chain-3", "chain-5", "chain-7", "hydra27", "adaptive")


def named(text: str) -> tuple[str, ...]:
    """Return the arms of a comma-separated list of arms and groups; `all` is every arm.

    Raises  KeyError with a name that is neither.
    """
    names: dict[str, None] = {}
    for word in text.split(","):
        group = tuple(ARMS.values()) if word == "all" else GROUPS.get(word) or (ARMS[word],)
        names.update(dict.fromkeys(arm.name for arm in group))
    return tuple(names)
