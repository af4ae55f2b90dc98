"""vLLM as an engine that the front can serve."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from services.contract.errors import CheckpointError
from services.gateway.chat import ChatTemplate
from services.gateway.defaults import Defaults
from services.gateway.front import Traits
from services.gateway.text import TextCodec
from services.gateway.vllm.door import VllmDoor
from services.gateway.vllm.native import Llm, NativeLlm, require_vllm, versions
from services.gateway.vllm.options import VllmOptions
from services.model.inspect import CheckpointFacts, describe


class ClosableLlm(Llm, Protocol):
    """An Llm with an end."""

    def close(self) -> None:
        """Stop its processes."""
        ...


class VllmWiring:
    """vLLM's engine process, for health and facts; it is not wired anew."""

    epoch = 1

    def __init__(self, llm: Llm, vocab_size: int) -> None:
        self._llm = llm
        self.vocab_size = vocab_size

    def health(self) -> dict[str, bool]:
        """Say whether the process serves."""
        return {"engine": not self._llm.is_dead}

    def stats(self) -> dict[str, Any]:
        """Return the fingerprint and the transport mode."""
        return {"mode": "process", "fingerprint": versions()}


class VllmEngine:
    """Text and defaults of a checkpoint around a vLLM that runs on an event loop of its own.

    Raises  CheckpointError for a folder without a byte-level tokenizer.
    """

    def __init__(
        self, options: VllmOptions, make: Callable[[VllmOptions], ClosableLlm] = NativeLlm
    ) -> None:
        folder = Path(options.config.model)
        self._raw = raw = _text_config(folder)
        self.options = options
        self.config = options.config
        self.traits: Traits = options.traits
        self.codec = TextCodec.load(folder)
        self.template = ChatTemplate.load(folder, self.codec)
        self.defaults = Defaults.load(folder, _eos_ids(raw), self.config.context_length)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        try:
            self._llm = asyncio.run_coroutine_threadsafe(_made(make, options), self._loop).result()
        except BaseException:
            self._end_loop()
            raise
        self.group = VllmWiring(self._llm, int(raw["vocab_size"]))
        self.groups = (self.group,)

    @classmethod
    def open(cls, options: VllmOptions) -> VllmEngine:
        """Load a checkpoint into vLLM.

        Raises  PreconditionError where vLLM is not installed.
        """
        require_vllm()
        return cls(options)

    def open_door(self) -> VllmDoor:
        """Return where requests go in."""
        return VllmDoor(
            self._llm,
            self._loop,
            self.codec,
            self.config,
            self.group.vocab_size,
            drafts=self.options.depth > 0,
        )

    def describe(self) -> CheckpointFacts:
        """Return what the checkpoint folder holds; the config alone of a kind we do not run."""
        folder = Path(self.config.model)
        try:
            return describe(folder)
        except CheckpointError as error:
            return _bare_facts(folder, self._raw, str(error))

    def close(self) -> None:
        """Stop vLLM's processes and the loop."""
        self._llm.close()
        self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10.0)


async def _made(make: Callable[[VllmOptions], ClosableLlm], options: VllmOptions) -> ClosableLlm:
    """Build vLLM where its event loop runs."""
    return make(options)


def _text_config(folder: Path) -> dict[str, Any]:
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        text = f"config.json of {folder.name} cannot be read: {type(error).__name__}"
        raise CheckpointError("CONFIG", text) from None
    config: dict[str, Any] = {**raw, **raw.get("text_config", {})}
    if not isinstance(config.get("vocab_size"), int):
        raise CheckpointError("CONFIG", f"config.json of {folder.name} has no vocab_size")
    return config


def _bare_facts(folder: Path, config: dict[str, Any], problem: str) -> CheckpointFacts:
    """Return what config.json says; 0 or empty is not known."""
    return CheckpointFacts(
        folder=str(folder),
        model_type=str(config.get("model_type", "")),
        num_layers=int(config.get("num_hidden_layers", 0)),
        num_gdn_layers=0,
        num_attention_layers=0,
        hidden_size=int(config.get("hidden_size", 0)),
        intermediate_size=0,
        vocab_size=int(config["vocab_size"]),
        gdn_heads="",
        attention_heads="",
        context_length=int(config.get("max_position_embeddings", 0)),
        dtypes={},
        is_tied=bool(config.get("tie_word_embeddings", False)),
        mtp_tensors="",
        num_files=0,
        num_tensors=0,
        num_parameters=0,
        num_mtp_parameters=0,
        weight_bytes=0,
        has_manifest=False,
        problem=problem,
    )


def _eos_ids(config: dict[str, Any]) -> tuple[int, ...]:
    listed = config.get("eos_token_id")
    return tuple(listed) if isinstance(listed, list) else () if listed is None else (listed,)
