"""What listens when the stages run under Ray, and who may join."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.gateway.engine import Engine
from services.runtime.ray_group import RayGroup
from tests.service.front import make_engine

LISTENING = "0A"
DASHBOARD_PORT = 8265
JOIN = """
import sys
from services.runtime.ray_session import ray
ray.init(address=sys.argv[1], log_to_driver=False)
print("joined", len(ray.nodes()))
"""


@pytest.fixture(scope="module")
def engine(ray_session: None) -> Iterator[Engine]:
    opened = make_engine(runtime="ray")
    try:
        yield opened
    finally:
        opened.close()


def _listeners(pid: int) -> set[int]:
    """Return the TCP ports on which a process listens."""
    inodes = set()
    for name in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(name))
        except OSError:
            continue
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and f"socket:[{words[9]}]" in inodes:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def _join(mode: str) -> subprocess.CompletedProcess[str]:
    from services.runtime.ray_session import ray

    where = ray.get_runtime_context().gcs_address
    environment = {**os.environ, "RAY_AUTH_MODE": mode}
    command = [sys.executable, "-c", JOIN, where]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_a_stage_listens_on_rays_own_worker_port_alone(engine: Engine) -> None:
    assert isinstance(engine.group, RayGroup)
    pids = engine.group.stage_pids()
    found = {name: _listeners(pid) for name, pid in pids.items()}
    assert all(len(ports) <= 1 for ports in found.values()), found
    assert DASHBOARD_PORT not in set().union(*found.values())


@pytest.mark.slow
def test_a_relay_listens_once_more_and_is_seen(ray_session: None) -> None:
    from services.runtime.relay import RelayHost

    before = _listeners(os.getpid())
    relay = RelayHost("127.0.0.1")
    _, port = relay.open("test-ports", 1, bytes(32))
    assert _listeners(os.getpid()) - before == {port}
    relay.hang_up()
    assert _listeners(os.getpid()) == before


@pytest.mark.slow
@pytest.mark.slow
def test_a_client_without_the_token_is_refused(ray_session: None) -> None:
    refused = _join("disabled")
    assert refused.returncode != 0 and "joined" not in refused.stdout


@pytest.mark.slow
@pytest.mark.slow
def test_a_client_with_the_token_joins(ray_session: None) -> None:
    taken = _join("token")
    assert taken.stdout.startswith("joined 1"), taken.stderr[-2000:]
