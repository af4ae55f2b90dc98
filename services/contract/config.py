"""The engine's configuration: one frozen value, one loader that refuses unknown keys."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from services.contract.checks import flag, text, whole
from services.contract.errors import ContractError, InvalidField
from services.contract.limits import (
    MAX_CONTEXT,
    MAX_DRAFTER_CHARS,
    MAX_GROUPS,
    MAX_PATH,
    MAX_SEQUENCES,
    MAX_SHAPE_CHARS,
    MAX_VOCAB,
    PAGE,
    PREFILL_GRID,
)

_CHOICES = {
    "mode": ("exact", "fast"),
    "dtype": ("auto", "float32", "bfloat16"),
    "runtime": ("inproc", "ray"),
}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Hold what an engine is built from.

    Args    model: folder of the checkpoint. num_pages: 0 makes enough for every sequence at
            full context. groups: copies of the three stages, one a GPU host. device: "cpu",
            "cuda" or "cuda:N". dtype: "auto" is float32 on a CPU
            and bfloat16 elsewhere; "bfloat16" on a CPU rounds the operands of matrix products.
            mps: start an NVIDIA MPS daemon, so that the stage processes' work need not wait
            for a switch of the GPU between them; for runtime ray on a GPU.
            draft_vocab: ids that the MTP head may draft, the first ones
            (byte-pair ids are ranked by frequency), 0 is all; it changes speed only.
    Raises  InvalidField naming the key.
    """

    model: str
    mode: str = "exact"
    runtime: str = "inproc"
    groups: int = 1
    device: str = "cpu"
    dtype: str = "auto"
    threads: int = 2
    max_sequences: int = 4
    context_length: int = 8192
    num_pages: int = 0
    prefill_grid: int = PREFILL_GRID
    shape: str = "hydra27"
    drafter: str = "mtp"
    suffix: bool = True
    draft_vocab: int = 0
    mps: bool = False

    def __post_init__(self) -> None:
        if not text(self.model, 4096, "model"):
            raise InvalidField("EMPTY", "empty; name a checkpoint folder", "model")
        for name, allowed in _CHOICES.items():
            _choice(getattr(self, name), allowed, name)
        _check_device(self.device)
        _check_groups(self.groups, self.runtime)
        whole(self.threads, 1, 1024, "threads")
        whole(self.max_sequences, 1, MAX_SEQUENCES, "max_sequences")
        whole(self.context_length, 2 * MAX_PATH, MAX_CONTEXT, "context_length")
        whole(self.num_pages, 0, MAX_SEQUENCES * MAX_CONTEXT // PAGE, "num_pages")
        _check_grid(self.prefill_grid)
        text(self.shape, MAX_SHAPE_CHARS, "shape")
        text(self.drafter, MAX_DRAFTER_CHARS, "drafter")
        flag(self.suffix, "suffix")
        whole(self.draft_vocab, 0, MAX_VOCAB, "draft_vocab")
        if flag(self.mps, "mps") and (self.runtime != "ray" or self.device == "cpu"):
            message = "shares a GPU between processes; use runtime ray and device cuda"
            raise InvalidField("MPS", message, "mps")

    @property
    def pages_per_sequence(self) -> int:
        """Return the pages that one sequence at full context needs."""
        return -(-self.context_length // PAGE)

    @property
    def total_pages(self) -> int:
        """Return the number of pages to allocate."""
        return self.num_pages or self.max_sequences * self.pages_per_sequence


def _choice(value: str, allowed: tuple[str, ...], field: str) -> None:
    if value not in allowed:
        raise InvalidField("UNKNOWN_VALUE", f"{value!r}; use one of {', '.join(allowed)}", field)


def _check_device(device: str) -> None:
    kind, _, index = text(device, 16, "device").partition(":")
    if kind not in ("cpu", "cuda") or (":" in device and not (kind == "cuda" and index.isdigit())):
        raise InvalidField("UNKNOWN_VALUE", f"{device!r}; use cpu, cuda or cuda:N", "device")


def _check_groups(groups: int, runtime: str) -> None:
    whole(groups, 1, MAX_GROUPS, "groups")
    if groups > 1 and runtime != "ray":
        message = f"{groups} stage groups in one process; use runtime ray"
        raise InvalidField("GROUPS", message, "groups")


def _check_grid(grid: int) -> None:
    whole(grid, PAGE, 8192, "prefill_grid")
    if grid % PAGE:
        raise InvalidField("GRID", f"{grid} is not a multiple of {PAGE}", "prefill_grid")


def config_from_mapping(values: Mapping[str, Any]) -> EngineConfig:
    """Return the configuration with these keys set; refuse a key that it does not have."""
    known = {field.name for field in fields(EngineConfig)}
    unknown = sorted(set(values) - known)
    if unknown:
        message = f"not a key of the configuration; known are {', '.join(sorted(known))}"
        raise InvalidField("UNKNOWN_KEY", message, unknown[0])
    if "model" not in values:
        raise InvalidField("MISSING", "not set; name a checkpoint folder", "model")
    return EngineConfig(**values)


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> EngineConfig:
    """Return the configuration of a TOML file, with `overrides` on top."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ContractError("CONFIG_FILE", f"{path} is not readable TOML: {error}") from None
    return config_from_mapping({**values, **(overrides or {})})
