"""A real server in this process for tests: its own event loop and thread, a free port."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from services.commands.options import EMBEDDED_MODEL
from services.contract.config import EngineConfig
from services.gateway.defaults import resolve_drafting
from services.gateway.engine import Engine, Generation
from services.gateway.requests import GenerationRequest
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

    def is_free(self) -> bool:
        """Say whether no sequence, slot or page is held."""
        scheduler, config = self.engine.scheduler, self.engine.config
        pages = scheduler.free_pages == config.total_pages
        return scheduler.is_idle and pages and scheduler.num_running == 0

    def seconds_to_free(self, limit: float = 5.0) -> float:
        """Return how long it takes until nothing is held; `limit` if it does not happen."""
        begun = time.monotonic()
        while not self.is_free() and time.monotonic() - begun < limit:
            time.sleep(0.001)
        return time.monotonic() - begun


def make_engine(**changes: Any) -> Engine:
    """Return an engine of the embedded checkpoint."""
    values = {"threads": 1, "context_length": 1024, "max_sequences": 2, **changes}
    return Engine.open(EngineConfig(model=str(EMBEDDED_MODEL), **values))


def generate_digested(engine: Engine, prompt: str, max_tokens: int, seed: int = 7) -> Generation:
    """Generate from an engine itself, sampled, with the digest of every cycle."""
    ids = tuple(engine.codec.encode(prompt))
    return engine.generate(
        GenerationRequest(
            request_id=engine.next_request_id(),
            prompt_ids=ids,
            sampling=engine.defaults.resolve_sampling({"seed": seed, "temperature": 0.9}),
            budget=engine.defaults.resolve_budget(len(ids), max_tokens, 0, True, ()),
            drafting=resolve_drafting("tree", None, "mtp", suffix=True),
            sink=lambda event: None,
            wants_digest=True,
        )
    )


@contextmanager
def running(engine: Engine | None = None, **options: Any) -> Iterator[RunningServer]:
    """Yield a server over an engine, a fresh one of the embedded checkpoint by default."""
    engine = engine or make_engine()
    server = RunningServer(engine, **options)
    try:
        yield server
    finally:
        server.stop()
        engine.close()


def rich_status(call: grpc.RpcError) -> status_pb2.Status:
    """Return the google.rpc.Status that a refusal carries."""
    return status_pb2.Status.FromString(dict(call.trailing_metadata())["grpc-status-details-bin"])


def refusal(call: grpc.RpcError) -> tuple[str, str, str]:
    """Return code, reason and field of a refusal."""
    info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    field = ""
    for detail in rich_status(call).details:
        detail.Unpack(info)
        if detail.Unpack(request):
            field = request.field_violations[0].field
    return call.code().name, info.reason, field
