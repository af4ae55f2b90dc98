"""The gRPC server: ports, credentials, limits, health, reflection, drain."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.contract import pb
from services.contract.errors import InvalidField
from services.contract.limits import (
    MAX_STREAMS_PER_CLIENT,
    METADATA_BYTES,
    PUBLIC_MESSAGE_BYTES,
)
from services.gateway.auth import BearerAuth
from services.gateway.front import Door, ServedEngine
from services.gateway.health import SERVICE, HealthMonitor
from services.gateway.info import ServerFacts
from services.gateway.intake import Intake
from services.gateway.names import model_name
from services.gateway.recorder import Recorder
from services.gateway.reflection import add_reflection
from services.gateway.servicer import GenerationServicer
from services.gateway.tls import TlsFiles, server_credentials
from services.runtime.log import get_logger

_LOG = get_logger("gateway.server")
MAX_CONCURRENT_CALLS = 512


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where and how the public port listens.

    Args    served_name: name of the model, its folder's by default. record: folder that takes
            every request with its answer. test_drafters: whether requests may name one.
    """

    host: str = "127.0.0.1"
    port: int = 50051
    tls: TlsFiles | None = None
    token: str | None = None
    shutdown_timeout_s: float = 30.0
    served_name: str = ""
    record: Path | None = None
    test_drafters: bool = False


@dataclass(slots=True)
class Server:
    """A running public service over one engine."""

    engine: ServedEngine
    options: ServeOptions
    port: int = 0
    _clock: Door = field(init=False)
    _monitor: HealthMonitor = field(init=False)
    _server: grpc.aio.Server = field(init=False)
    _servicer: GenerationServicer = field(init=False)
    _watch: asyncio.Task[None] = field(init=False)

    async def start(self) -> None:
        """Bind the port and serve; `port` is then the bound one.

        Raises  InvalidField if the port cannot be bound or TLS files are missing.
        """
        self._clock = self.engine.open_door()
        stages = self.engine.traits.stages
        self._monitor = HealthMonitor(self.engine.groups, self._clock, stages)
        guards = [BearerAuth(self.options.token)] if self.options.token else []
        intake = Intake(_services(pb.generation_pb2), _services(health_pb2))
        self._server = grpc.aio.server(
            options=_CHANNEL_OPTIONS,
            interceptors=(*guards, intake),
            maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
        )
        self._servicer = self._make_servicer()
        pb.generation_pb2_grpc.add_GenerationServiceServicer_to_server(self._servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._monitor.servicer, self._server)
        add_reflection(_reflected(), self._server)
        self.port = self._bind()
        self._clock.start()
        await self._monitor.update()
        await self._server.start()
        self._watch = asyncio.create_task(self._monitor.run())

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain; a second signal stops at once."""
        first, second = asyncio.Event(), asyncio.Event()

        def on_signal() -> None:
            (second if first.is_set() else first).set()

        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, on_signal)
        await first.wait()
        drain = asyncio.create_task(self.stop())
        hurry = asyncio.create_task(second.wait())
        await asyncio.wait({drain, hurry}, return_when=asyncio.FIRST_COMPLETED)
        if not drain.done():
            await self.stop(timeout_s=0.0)
        hurry.cancel()

    async def stop(self, timeout_s: float | None = None) -> None:
        """Show NOT_SERVING, let live requests end, abort the rest, close the port."""
        timeout_s = self.options.shutdown_timeout_s if timeout_s is None else timeout_s
        end = time.monotonic() + timeout_s
        await self._monitor.drain()
        drained = await asyncio.to_thread(self._clock.drain, timeout_s)
        while self._servicer.num_live and time.monotonic() < end:
            await asyncio.sleep(0.01)  # what is computed may still be on its way to its reader
        _LOG.info("drained", complete=drained and not self._servicer.num_live)
        await asyncio.to_thread(self._clock.stop)
        self._watch.cancel()
        await self._server.stop(grace=1.0)

    def _make_servicer(self) -> GenerationServicer:
        options = self.options
        facts = ServerFacts(self.engine, options.served_name)
        model_name(facts.model, "served-model-name")
        recorder = Recorder(options.record) if options.record else None
        return GenerationServicer(self.engine, self._clock, facts, recorder, options.test_drafters)

    def _bind(self) -> int:
        options = self.options
        address = join_address(options.host, options.port)
        try:
            if options.tls is None:
                return int(self._server.add_insecure_port(address))
            return int(self._server.add_secure_port(address, server_credentials(options.tls)))
        except RuntimeError as error:
            text = f"{address} cannot be bound; choose another port or stop its owner"
            raise InvalidField("PORT", text, "port") from error


_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", PUBLIC_MESSAGE_BYTES),
    ("grpc.max_send_message_length", 16 * PUBLIC_MESSAGE_BYTES),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),  # else some between are let through
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 2 * MAX_STREAMS_PER_CLIENT),
    ("grpc.so_reuseport", 0),
)


def join_address(host: str, port: int) -> str:
    """Return host:port, an IPv6 address in brackets."""
    bare = host.removeprefix("[").removesuffix("]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def _services(module: Any) -> ServiceDescriptor:
    """Return the one service of a generated module."""
    (service,) = module.DESCRIPTOR.services_by_name.values()
    return service


def _reflected() -> tuple[str, ...]:
    return SERVICE, _services(health_pb2).full_name


def read_token(file: Path | None) -> str | None:
    """Return the bearer token in a file; no file means no token."""
    if file is None:
        return None
    token = file.read_text(encoding="utf-8").strip()
    if len(token) < 16:
        raise InvalidField(
            "TOKEN", f"{file} holds {len(token)} characters; use 16 or more", "token"
        )
    return token
