"""A vLLM that is not there: its module and classes as the gateway uses them, with a script."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator
from itertools import cycle, islice
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SCRIPT = b"def add(a, b):\n    return a + b\n\n\n"
PIECES = (1, 3, 2, 1)


class FakeAsyncLLM:
    """Write the script over and over, several tokens at once; remember what was asked."""

    made: Any = None

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.errored = False
        self.is_closed = False
        self.asked: list[tuple[Any, Any, str]] = []
        self.live: set[str] = set()
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        FakeAsyncLLM.made = self

    @classmethod
    def from_engine_args(cls, arguments: dict[str, Any]) -> FakeAsyncLLM:
        return cls(arguments)

    def shutdown(self) -> None:
        self.is_closed = True

    async def generate(self, prompt: Any, params: Any, name: str) -> AsyncGenerator[Any, None]:
        self.asked.append((prompt, params, name))
        self.live.add(name)
        try:
            for ids, finish in _pieces(params):
                await asyncio.sleep(0.0005)
                await self.gate.wait()
                if self.failure is not None:
                    raise self.failure
                yield self._output(ids, finish, params)
        finally:
            self.live.discard(name)

    def _output(self, ids: list[int], finish: str | None, params: Any) -> Any:
        drafts = self.arguments["speculative_config"]
        metrics = SimpleNamespace(histogram=[2, 1, 0, 3], num_draft_tokens=18)
        part = SimpleNamespace(
            token_ids=ids,
            finish_reason=finish,
            logprobs=None if params.logprobs is None else [_row(i, params.logprobs) for i in ids],
            spec_decode_metrics=metrics if drafts and finish else None,
        )
        times = SimpleNamespace(queued_ts=5.0, scheduled_ts=5.25)
        return SimpleNamespace(outputs=[part], metrics=times)


def _row(token: int, count: int) -> dict[int, Any]:
    """Return vLLM's form: the `count` best, and the chosen one, here ranked third."""
    row = {200: SimpleNamespace(logprob=-0.5, rank=1), 201: SimpleNamespace(logprob=-1.0, rank=2)}
    best = dict(islice(row.items(), count))
    return {**best, token: SimpleNamespace(logprob=-2.0, rank=3)}


def _pieces(params: Any) -> Iterator[tuple[list[int], str | None]]:
    tokens, sizes, left = cycle(SCRIPT), cycle(PIECES), params.max_tokens
    while True:
        ids = []
        for token in islice(tokens, min(next(sizes), left)):
            ids.append(token)
            if token in params.stop_token_ids and params.max_tokens - left + len(ids) > (
                params.min_tokens
            ):
                yield ids, "stop"
                return
        left -= len(ids)
        yield ids, None if left else "length"
        if not left:
            return


def install(patch: pytest.MonkeyPatch) -> None:
    """Make `import vllm` find the fake."""
    modules = {
        "vllm": {"SamplingParams": SimpleNamespace},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(DELTA="delta")},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"AsyncEngineArgs": dict},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.async_llm": {"AsyncLLM": FakeAsyncLLM},
    }
    for name, values in modules.items():
        module = ModuleType(name)
        module.__dict__.update(values)
        patch.setitem(sys.modules, name, module)
