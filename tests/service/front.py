"""A real server in this process for tests: its own event loop and thread, a free port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from services.commands.options import EMBEDDED_MODEL
from services.contract.config import EngineConfig
from services.gateway.engine import Engine
from services.gateway.server import ServeOptions, Server


class RunningServer:
    """A server and the loop it runs on."""

    def __init__(self, engine: Engine, **options: Any) -> None:
        self.engine = engine
        self.server = Server(engine, ServeOptions(port=0, **options))
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.call(self.server.start())

    @property
    def target(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.server.port}"

    def call(self, coroutine: Any) -> Any:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def stop(self) -> None:
        """Drain without waiting and end the loop."""
        self.call(self.server.stop(timeout_s=0.0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)


def make_engine(**changes: Any) -> Engine:
    """Return an engine of the embedded checkpoint."""
    values = {"threads": 1, "context_length": 1024, "max_sequences": 2, **changes}
    return Engine.open(EngineConfig(model=str(EMBEDDED_MODEL), **values))


@contextmanager
def running(**options: Any) -> Iterator[RunningServer]:
    """Yield a server over a fresh engine."""
    engine = make_engine()
    server = RunningServer(engine, **options)
    try:
        yield server
    finally:
        server.stop()
        engine.close()
