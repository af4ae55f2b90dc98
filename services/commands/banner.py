"""What `lumotree serve` says while it starts."""

from __future__ import annotations

import platform
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from services.contract.config import EngineConfig
from services.contract.errors import UnavailableError
from services.gateway.defaults import resolve_drafting
from services.gateway.engine import Engine
from services.gateway.requests import Event, GenerationRequest
from services.gateway.server import ServeOptions
from services.model.checkpoint import Checkpoint
from services.model.inspect import describe
from services.runtime.owners import shared_sizes

SELF_TEST_PROMPTS = ("def main():\n", "class Tree:\n", "import os\n")
SELF_TEST_TOKENS = 16
_MIB = 1 << 20


def print_plan(console: Console, config: EngineConfig) -> None:
    """Print versions, device, memory plan and checkpoint, before anything is loaded.

    Raises  CheckpointError for a folder that is not what it says.
    """
    folder = Path(config.model)
    model, facts = Checkpoint.open(folder).config, describe(folder)
    console.print(
        f"[bold]lumotree[/bold] {version('lumotree')}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()}"
    )
    console.print(f"device {_device(config)}, runtime {config.runtime}, mode {config.mode}")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, size in _memory(shared_sizes(model, config), config):
        table.add_row(name, f"{size / _MIB:,.1f} MiB", style="dim")
    console.print(table)
    console.print(
        f"weights {facts.num_parameters:,} parameters, {facts.num_tensors} tensors in "
        f"{facts.num_files} file(s), MTP {facts.mtp_tensors}, "
        f"{'tied' if facts.is_tied else 'untied'} head"
    )


def print_self_test(console: Console, engine: Engine) -> None:
    """Compare tree with plain decoding on a few prompts, in every stage group.

    Raises  UnavailableError if a token differs: the server must not start.
    """
    for prompt in SELF_TEST_PROMPTS:
        ids = tuple(engine.codec.encode(prompt))
        texts = {
            engine.generate(_probe(engine, ids, mode), group=group).finished.token_ids
            for group in range(len(engine.groups))
            for mode in ("off", "tree")
        }
        if len(texts) > 1:
            text = "tree and plain decoding, or two groups, differ; check the weights"
            raise UnavailableError("SELF_TEST", f"{text} and `lumotree verify`")
    groups = f" in {len(engine.groups)} groups" if len(engine.groups) > 1 else ""
    count = len(SELF_TEST_PROMPTS)
    console.print(f"self-test tree = plain on {count} prompts{groups}: [green]ok[/green]")


def print_ready(console: Console, options: ServeOptions, target: str) -> None:
    """Print where the service listens and two ways to ask it."""
    console.print(f"[bold green]ready[/bold green] gRPC on {target} ({_security(options)})")
    flag = "" if options.tls else "-plaintext "
    body = '{"text": {"text": "def main():"}}'
    call = f"{target} lumotree.v1.GenerationService/GenerateStream"
    console.print(f"  grpcurl {flag}-d '{body}' {call}", soft_wrap=True)
    python = f'Client("{target}").generate("def main():").text'
    console.print(f"  python  from services.client import Client; {python}", soft_wrap=True)


def _probe(engine: Engine, ids: tuple[int, ...], mode: str) -> GenerationRequest:
    drafting = resolve_drafting(mode, None, "mtp", suffix=True)
    return GenerationRequest(
        request_id=engine.next_request_id(),
        prompt_ids=ids,
        sampling=engine.defaults.resolve_sampling({"temperature": 0.0}),
        budget=engine.defaults.resolve_budget(len(ids), SELF_TEST_TOKENS, ignore_eos=True),
        drafting=replace(drafting, tenant="self-test"),
        sink=_ignore,
    )


def _ignore(event: Event) -> None:
    del event


def _device(config: EngineConfig) -> str:
    dtype = config.dtype
    if config.device == "cpu":
        return f"cpu, {config.threads} threads, {'float32' if dtype == 'auto' else dtype}"
    if not torch.cuda.is_available():
        return f"{config.device}, not on this host"
    name, (major, minor) = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    return f"{name}, sm_{major}{minor}, {'bfloat16' if dtype == 'auto' else dtype}"


def _memory(sizes: dict[str, int], config: EngineConfig) -> list[tuple[str, int]]:
    rows = [(f"{name} memory" if name != "weights" else name, n) for name, n in sizes.items()]
    pages = f"({config.max_sequences} sequences of {config.context_length} positions"
    return [*rows, (f"in all {pages}, {config.total_pages} pages)", sum(sizes.values()))]


def _security(options: ServeOptions) -> str:
    transport = "plaintext" if options.tls is None else "TLS"
    if options.tls is not None and options.tls.ca is not None:
        transport = "mutual TLS"
    return f"{transport}, {'bearer token' if options.token else 'no token'}"
