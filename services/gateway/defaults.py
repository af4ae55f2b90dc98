"""Resolve what a request leaves unset: the checkpoint's defaults, a fresh seed, a shape."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.contract.errors import CheckpointError, InvalidField
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.contract.shape import read_shape

DEFAULT_MAX_TOKENS = 256
_SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_SHAPE_OF_MODE = {"off": "root", "chain": "chain-5", "tree": "hydra27"}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a checkpoint says about sampling and its end tokens."""

    sampling: dict[str, Any]
    eos_ids: tuple[int, ...]
    context_length: int

    @classmethod
    def load(cls, folder: Path, eos_ids: tuple[int, ...], context_length: int) -> Defaults:
        """Read generation_config.json; its end tokens join the configuration's."""
        file = folder / "generation_config.json"
        try:
            raw = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        except json.JSONDecodeError as error:
            raise CheckpointError(
                "GENERATION_CONFIG", f"{file.name} is not JSON: {error}"
            ) from None
        listed = raw.get("eos_token_id") or []
        listed = [listed] if isinstance(listed, int) else listed
        values = {name: raw[name] for name in _SAMPLING_DEFAULTS if raw.get(name) is not None}
        if raw.get("do_sample") is False:
            values["temperature"] = 0.0
        return cls(values, tuple(dict.fromkeys([*listed, *eos_ids])), context_length)

    def resolve_sampling(self, given: Mapping[str, Any]) -> SamplingParams:
        """Return the checkpoint's values under the given ones; an absent seed is drawn."""
        seed = secrets.randbits(63)
        return SamplingParams(**{"seed": seed, **self.sampling, **_present(given)})

    def resolve_budget(
        self,
        prompt_tokens: int,
        max_tokens: int | None = None,
        min_tokens: int = 0,
        ignore_eos: bool = False,
        stop_ids: tuple[int, ...] = (),
    ) -> Budget:
        """Return the budget; an unset max_tokens is clamped to the context, a set one is kept."""
        room = max(1, self.context_length - prompt_tokens)
        return Budget(
            max_tokens=min(DEFAULT_MAX_TOKENS, room) if max_tokens is None else max_tokens,
            min_tokens=min_tokens,
            eos_ids=() if ignore_eos else self.eos_ids,
            stop_ids=stop_ids,
            context_length=self.context_length,
        )


def resolve_drafting(mode: str, shape: str | None, drafter: str, suffix: bool) -> Drafting:
    """Return the drafting that a mode and an optional shape ask for.

    Raises  InvalidField for a shape that is none, or if they contradict each other.
    """
    if mode not in _SHAPE_OF_MODE:
        raise InvalidField("UNKNOWN_MODE", f"{mode!r}; use off, chain or tree", "mode")
    shape = shape or _SHAPE_OF_MODE[mode]
    is_chain = read_shape(shape).kind == "chain"
    if (mode == "off") != (shape == "root") or (mode == "chain") != is_chain:
        raise InvalidField("SHAPE_OF_MODE", f"mode {mode} does not draft {shape}", "shape")
    return Drafting(shape=shape, drafter=drafter, suffix=suffix and mode == "tree")


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
