"""`lumotree serve`: the public gRPC service."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from services.commands import options as opt
from services.commands.banner import print_plan, print_ready, print_self_test
from services.commands.loading import DEFAULT_CONTEXT, DEFAULT_THREADS, open_engine, open_vllm
from services.contract.config import EngineConfig, config_from_mapping, load_config
from services.contract.errors import InvalidField
from services.gateway.front import ServedEngine
from services.gateway.names import model_name
from services.gateway.server import ServeOptions, Server, join_address, read_token
from services.gateway.tls import TlsFiles
from services.gateway.vllm.options import VllmOptions
from services.runtime.log import set_up_logs

OptionalFile = Path | None
OptionalInt = int | None
OptionalText = str | None
_DEFAULTS = {
    "model": str(opt.EMBEDDED_MODEL),
    "threads": DEFAULT_THREADS,
    "context_length": DEFAULT_CONTEXT,
}


def serve(
    config: Annotated[
        OptionalFile, typer.Option("--config", help="TOML of engine settings; flags win.")
    ] = None,
    model: Annotated[OptionalFile, typer.Option("--model", help="Checkpoint folder.")] = None,
    served_model_name: Annotated[
        str, typer.Option("--served-model-name", help="Unset: the folder's name.")
    ] = "",
    engine: Annotated[str, typer.Option("--engine", help="lumotree or vllm.")] = "lumotree",
    speculative: Annotated[
        str, typer.Option("--speculative", help="What vLLM drafts: off, mtp-K or suffix-K.")
    ] = "off",
    runtime: Annotated[OptionalText, typer.Option("--runtime", help="inproc or ray.")] = None,
    groups: Annotated[
        OptionalInt, typer.Option("--groups", help="Stage groups, one a GPU host; needs ray.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 50051,
    tls_cert: Annotated[OptionalFile, typer.Option("--tls-cert", help="PEM chain.")] = None,
    tls_key: Annotated[OptionalFile, typer.Option("--tls-key", help="PEM key.")] = None,
    tls_ca: Annotated[OptionalFile, typer.Option("--tls-ca", help="Asks for client certs.")] = None,
    api_key_file: Annotated[
        OptionalFile, typer.Option("--api-key-file", help="File with the bearer token.")
    ] = None,
    max_num_seqs: Annotated[
        OptionalInt, typer.Option("--max-num-seqs", help="Sequences at once.")
    ] = None,
    max_model_len: Annotated[
        OptionalInt, typer.Option("--max-model-len", help="Positions of a sequence.")
    ] = None,
    threads: Annotated[OptionalInt, typer.Option("--threads", help="CPU threads.")] = None,
    device: Annotated[OptionalText, typer.Option("--device", help="cpu, cuda or cuda:N.")] = None,
    dtype: opt.OptionalDtype = None,
    mps: Annotated[
        bool | None, typer.Option("--mps", help="Start NVIDIA MPS for the stages of --runtime ray.")
    ] = None,
    shutdown_timeout: Annotated[
        float, typer.Option("--shutdown-timeout", min=0, help="Seconds live requests may take.")
    ] = 30.0,
    record: Annotated[
        OptionalFile, typer.Option("--record", help="Folder that takes requests and answers.")
    ] = None,
    record_consent: Annotated[
        bool, typer.Option("--record-consent", help="Callers agreed to be recorded.")
    ] = False,
    test_drafters: Annotated[
        bool, typer.Option("--test-drafters", help="Let requests name random or remembered.")
    ] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", help="debug, info, warning or error.")
    ] = "warning",
) -> None:
    """Serve gRPC until SIGTERM; a second signal stops at once."""
    set_up_logs(log_level)
    engine_config = _engine_config(
        config,
        {
            "model": None if model is None else str(model),
            "runtime": runtime,
            "groups": groups,
            "device": device,
            "dtype": dtype,
            "mps": mps,
            "threads": threads,
            "context_length": max_model_len,
            "max_sequences": max_num_seqs,
        },
    )
    options = ServeOptions(
        host=host,
        port=port,
        tls=_tls(tls_cert, tls_key, tls_ca),
        token=read_token(api_key_file),
        shutdown_timeout_s=shutdown_timeout,
        served_name=served_model_name and model_name(served_model_name, "served-model-name"),
        record=_record(record, record_consent),
        test_drafters=test_drafters,
    )
    _check_port(host, port)
    console = Console(stderr=True, highlight=False)
    with _opened(engine, engine_config, speculative, console) as opened:
        asyncio.run(_serve(opened, options, console))


@contextmanager
def _opened(
    name: str, config: EngineConfig, speculative: str, console: Console
) -> Iterator[ServedEngine]:
    """Yield the engine of this name, loaded; close it at the end."""
    if name == "vllm":
        with open_vllm(VllmOptions(config, speculative), console) as served:
            yield served
        return
    if name != "lumotree":
        raise InvalidField("UNKNOWN_ENGINE", f"{name!r}; use lumotree or vllm", "engine")
    if speculative != "off":
        text = "chooses what vLLM drafts; a request to lumotree names its shape"
        raise InvalidField("SPECULATIVE", text, "speculative")
    print_plan(console, config)
    with open_engine(config, quiet=False) as engine:
        print_self_test(console, engine)
        yield engine


async def _serve(engine: ServedEngine, options: ServeOptions, console: Console) -> None:
    server = Server(engine, options)
    await server.start()
    print_ready(console, options, join_address(options.host, server.port))
    await server.run()


def _engine_config(file: OptionalFile, flags: dict[str, Any]) -> EngineConfig:
    given = {name: value for name, value in flags.items() if value is not None}
    if file is None:
        return config_from_mapping({**_DEFAULTS, **given})
    return load_config(file, given)


def _check_port(host: str, port: int) -> None:
    """Refuse a taken port before minutes of loading."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            text = (
                f"{join_address(host, port)} cannot be bound: {error.strerror}; choose another one"
            )
            raise InvalidField("PORT", text, "port") from None


def _record(folder: OptionalFile, consent: bool) -> OptionalFile:
    if folder is not None and not consent:
        text = "stores what callers write; give --record-consent when they agreed"
        raise InvalidField("RECORD_CONSENT", text, "record")
    return folder


def _tls(cert: OptionalFile, key: OptionalFile, ca: OptionalFile) -> TlsFiles | None:
    if cert is None and key is None and ca is None:
        return None
    if cert is None or key is None:
        raise InvalidField("TLS", "--tls-cert and --tls-key go together; give both", "tls")
    files = TlsFiles(cert, key, ca)
    files.check()
    return files
