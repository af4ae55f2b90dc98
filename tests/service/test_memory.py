"""Fault kind 15: a host without memory refuses by name, at the start and later; odd probes help."""

from __future__ import annotations

import sys
from pathlib import Path

import grpc
import pytest
import torch

from services.cli import main
from services.client import Client
from services.contract.errors import PreconditionError
from services.runtime import host_memory
from services.runtime.host_memory import RESERVE_BYTES, available_bytes, check_start
from tests.service.front import RunningServer, refusal

GIB = 1 << 30


def _write_meminfo(folder: Path, available: int) -> Path:
    file = folder / "meminfo"
    file.write_text(
        f"MemTotal: {64 << 20} kB\nMemFree: 100 kB\nMemAvailable: {available >> 10} kB\n"
    )
    return file


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what makes the host seem to have so many bytes, and a container so many."""

    def set_memory(
        available: int, limit: int | None = None, used: int = 0, cached: int = 0
    ) -> None:
        monkeypatch.setattr(host_memory, "MEMINFO", _write_meminfo(tmp_path, available))
        monkeypatch.setattr(host_memory, "CGROUP", tmp_path)
        (tmp_path / "memory.max").write_text("max\n" if limit is None else f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
        (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")

    return set_memory


def test_available_memory_is_the_hosts_or_the_containers(host) -> None:
    host(8 * GIB)
    assert available_bytes() == 8 * GIB
    host(8 * GIB, limit=4 * GIB, used=3 * GIB, cached=GIB)
    assert available_bytes() == 2 * GIB, "page cache of the container can be taken back"
    host(GIB, limit=4 * GIB)
    assert available_bytes() == GIB


def test_files_that_cannot_be_read_bound_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_memory, "MEMINFO", tmp_path / "none")
    monkeypatch.setattr(host_memory, "CGROUP", tmp_path)
    check_start({"weights": 100 * GIB}, "cpu")


def test_start_is_refused_at_one_byte_too_few(host) -> None:
    """Both sides of the bound."""
    host(3 * GIB + RESERVE_BYTES)
    check_start({"weights": 2 * GIB, "drafter": GIB}, "cpu")
    with pytest.raises(PreconditionError) as caught:
        check_start({"weights": 2 * GIB, "drafter": GIB + 1}, "cpu")
    said = str(caught.value)
    assert "max_sequences" in said and "3,072" in said and "weights 2,048" in said


class _Properties:
    def __init__(self, is_integrated: bool) -> None:
        self.is_integrated = is_integrated


@pytest.mark.parametrize(("is_integrated", "starts"), [(True, True), (False, False)])
def test_unified_memory_is_the_hosts_and_a_cards_its_own(
    host, monkeypatch: pytest.MonkeyPatch, is_integrated: bool, starts: bool
) -> None:
    """A unified device reports what is free, without what can be taken back (no NVML is asked)."""
    host(100 * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * GIB, 120 * GIB))
    properties = _Properties(is_integrated)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    if starts:
        check_start({"weights": 20 * GIB}, "cuda:0")
    else:
        with pytest.raises(PreconditionError):
            check_start({"weights": 20 * GIB}, "cuda:0")


def test_no_module_asks_nvml() -> None:
    """NVML answers N/A on unified memory; nothing may depend on it."""
    root = Path(host_memory.__file__).parents[1]
    for file in root.rglob("*.py"):
        text = file.read_text(encoding="utf-8").lower()
        assert "pynvml" not in text and "nvidia-smi" not in text, file


@pytest.mark.parametrize(
    "options",
    [("--max-num-seqs", "256", "--max-model-len", "1048576"), ("--max-num-seqs", "2")],
)
def test_serve_says_once_that_memory_is_missing(
    byte_model: Path, host, monkeypatch: pytest.MonkeyPatch, capsys, options: tuple[str, ...]
) -> None:
    host(RESERVE_BYTES + (64 * GIB if "256" in options else 100))
    command = ["lumotree", "serve", "--model", str(byte_model), "--port", "0", *options]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as caught:
        main()
    written = capsys.readouterr().err
    said = [line for line in written.splitlines() if line.startswith("lumotree:")]
    assert caught.value.code == 2 and "Traceback" not in written
    assert len(said) == 1 and "MiB are needed" in written


def test_a_host_below_its_reserve_sheds_load_and_recovers(
    small_server: RunningServer, host
) -> None:
    """What runs goes on, what is new is refused with a time to retry, health calls are answered."""
    host(8 * GIB)
    with Client(small_server.target) as client:
        stream = client.stream("runs", max_tokens=300, ignore_eos=True)
        next(stream)
        host(RESERVE_BYTES - (1 << 20))
        with pytest.raises(grpc.RpcError) as caught:
            client.generate("new", max_tokens=1)
        assert refusal(caught.value)[:2] == ("RESOURCE_EXHAUSTED", "HOST_MEMORY")
        assert [part.finish_reason for part in stream][-1] == "length"
        host(RESERVE_BYTES + (1 << 20))
        assert client.generate("new", max_tokens=1, ignore_eos=True).token_ids
