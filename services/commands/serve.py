"""`lumotree serve`: the public gRPC service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from services.commands import options as opt
from services.commands.loading import DEFAULT_CONTEXT, DEFAULT_THREADS, open_engine
from services.contract.config import EngineConfig
from services.contract.errors import InvalidField
from services.gateway.engine import Engine
from services.gateway.server import ServeOptions, Server, read_token
from services.gateway.tls import TlsFiles

OptionalFile = Path | None


def serve(
    model: opt.Model = opt.EMBEDDED_MODEL,
    runtime: Annotated[str, typer.Option("--runtime", help="inproc or ray.")] = "inproc",
    groups: Annotated[
        int, typer.Option("--groups", help="Stage groups, one a GPU host; needs ray.")
    ] = 1,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes a free one.")] = 50051,
    tls_cert: Annotated[OptionalFile, typer.Option("--tls-cert", help="PEM chain.")] = None,
    tls_key: Annotated[OptionalFile, typer.Option("--tls-key", help="PEM key.")] = None,
    tls_ca: Annotated[OptionalFile, typer.Option("--tls-ca", help="Asks for client certs.")] = None,
    api_key_file: Annotated[
        OptionalFile, typer.Option("--api-key-file", help="File with the bearer token.")
    ] = None,
    max_num_seqs: Annotated[int, typer.Option("--max-num-seqs", help="Sequences at once.")] = 4,
    max_model_len: opt.Context = DEFAULT_CONTEXT,
    threads: opt.Threads = DEFAULT_THREADS,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or cuda:N.")] = "cpu",
    shutdown_timeout: Annotated[
        float, typer.Option("--shutdown-timeout", help="Seconds live requests may take.")
    ] = 30.0,
) -> None:
    """Serve gRPC until SIGTERM; a second signal stops at once."""
    config = EngineConfig(
        model=str(model),
        runtime=runtime,
        groups=groups,
        device=device,
        threads=threads,
        context_length=max_model_len,
        max_sequences=max_num_seqs,
    )
    options = ServeOptions(
        host=host,
        port=port,
        tls=_tls(tls_cert, tls_key, tls_ca),
        token=read_token(api_key_file),
        shutdown_timeout_s=shutdown_timeout,
    )
    with open_engine(config, quiet=False) as engine:
        asyncio.run(_serve(engine, options))


async def _serve(engine: Engine, options: ServeOptions) -> None:
    server = Server(engine, options)
    await server.start()
    target = f"{options.host}:{server.port}"
    console = Console(stderr=True, highlight=False)
    console.print(f"[bold green]ready[/bold green] gRPC on {target} ({_security(options)})")
    console.print(
        f"  grpcurl {'' if options.tls else '-plaintext '}"
        f'-d \'{{"text": {{"text": "def main():"}}}}\' '
        f"{target} lumotree.v1.GenerationService/GenerateStream",
        soft_wrap=True,
    )
    await server.run()


def _security(options: ServeOptions) -> str:
    transport = "plaintext" if options.tls is None else "TLS"
    if options.tls is not None and options.tls.ca is not None:
        transport = "mutual TLS"
    return f"{transport}, {'bearer token' if options.token else 'no token'}"


def _tls(cert: OptionalFile, key: OptionalFile, ca: OptionalFile) -> TlsFiles | None:
    if cert is None and key is None and ca is None:
        return None
    if cert is None or key is None:
        raise InvalidField("TLS", "--tls-cert and --tls-key go together; give both", "tls")
    files = TlsFiles(cert, key, ca)
    files.check()
    return files
