"""`lumotree serve --runtime ray` as a process: the text of `lumotree generate`, and a clean end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.client import Client
from services.commands.options import EMBEDDED_MODEL
from tests.service.test_process import served, tree
from tests.tidy.sources import ROOT

PROMPT = "def fibonacci(n):\n"


def _generated() -> list[int]:
    options = ["--max-tokens", "48", "--seed", "5", "--temperature", "0.8", "--threads", "1"]
    command = [sys.executable, "-m", "services.cli", "generate", PROMPT, "--json", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    ids: list[int] = json.loads(done.stdout)["token_ids"]
    return ids


def _stages(pid: int) -> set[int]:
    """Return the processes of stage actors under a server."""
    titles = (b"ray::Drafter", b"ray::Verifier", b"ray::Committer")
    return {one for one in tree(pid) if _title(one).startswith(titles)}


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _left(pids: set[int], seconds: float = 20.0) -> set[int]:
    """Return which of some processes still run after a while."""
    end = time.monotonic() + seconds
    while (left := {pid for pid in pids if _title(pid)}) and time.monotonic() < end:
        time.sleep(0.1)
    return left


@pytest.mark.slow
def test_served_over_actors_is_what_generate_prints_and_nothing_is_left(tmp_path: Path) -> None:
    with served(Path(EMBEDDED_MODEL), tmp_path / "log", "--runtime", "ray") as server:
        ours = _stages(server.process.pid)
        assert len(ours) == 3
        with Client(server.target) as client:
            parts = client.stream(PROMPT, max_tokens=48, seed=5, temperature=0.8)
            ids = [token for part in parts for token in part.token_ids]
        assert ids == _generated()
        server.process.terminate()
        assert server.process.wait(30) == 0
    assert not _left(ours)


@pytest.mark.slow
def test_a_killed_server_takes_its_stages_with_it(tmp_path: Path) -> None:
    with served(Path(EMBEDDED_MODEL), tmp_path / "log", "--runtime", "ray") as server:
        ours = _stages(server.process.pid)
        server.process.kill()
        server.process.wait(10)
    assert len(ours) == 3 and not _left(ours)
