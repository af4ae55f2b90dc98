"""Load an engine with a progress bar on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from services.contract.config import EngineConfig
from services.gateway.engine import Engine
from services.gateway.vllm.engine import VllmEngine
from services.gateway.vllm.native import require_vllm, versions
from services.gateway.vllm.options import VllmOptions

DEFAULT_CONTEXT = 8192
DEFAULT_THREADS = 2


@contextmanager
def open_engine(config: EngineConfig, quiet: bool) -> Iterator[Engine]:
    """Yield a loaded engine and close it; the bar is hidden when `quiet`."""
    console = Console(stderr=True, quiet=quiet)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        engine = Engine.open(config, progress)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def open_vllm(options: VllmOptions, console: Console) -> Iterator[VllmEngine]:
    """Yield a vLLM engine and close it.

    Raises  PreconditionError where vLLM is not installed.
    """
    require_vllm()
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    config = options.config
    console.print(
        f"[bold]lumotree[/bold] over {found}; device {config.device}, {config.threads} threads, "
        f"speculation {options.speculative}"
    )
    engine = VllmEngine.open(options)
    try:
        yield engine
    finally:
        engine.close()


def local_config(
    model: Path, threads: int, context: int, sequences: int = 1, dtype: str = "auto"
) -> EngineConfig:
    """Return the configuration of an in-process CPU engine."""
    return EngineConfig(
        model=str(model),
        threads=threads,
        context_length=context,
        max_sequences=sequences,
        dtype=dtype,
    )
