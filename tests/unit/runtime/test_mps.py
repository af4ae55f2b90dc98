"""The daemon's life against a stand-in for its control program."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from services.contract.config import EngineConfig
from services.contract.errors import InvalidField, PreconditionError, UnavailableError
from services.runtime import mps, ray_session
from services.runtime.mps import Mps

CONTROL = """#!/bin/sh
cd "$CUDA_MPS_PIPE_DIRECTORY" || exit 1
if [ "$1" = "-d" ]; then touch running; echo start >> "{log}"; exit {status}; fi
[ -e running ] || exit 1
while read -r word rest; do
  echo "$word $rest" >> "{log}"
  case "$word" in
    get_server_list) echo 77;;
    get_client_list) printf '{clients}';;
    quit) rm running;;
  esac
done
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(mps, "_ATTACH_SECONDS", 0.0)
    return tmp_path / "log"


def install(log: Path, clients: str = "", status: int = 0) -> None:
    program = log.parent / "nvidia-cuda-mps-control"
    program.write_text(CONTROL.format(log=log, clients=clients, status=status))
    program.chmod(stat.S_IRWXU)


def test_stages_that_are_attached_pass_and_the_daemon_ends(log: Path) -> None:
    install(log, clients="101\\n102\\n103\\n")
    daemon = Mps.start()
    folder = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    daemon.check_attached({"drafter": 101, "verifier": 102, "committer": 103})
    daemon.stop()
    assert not folder.exists() and "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    words = log.read_text().splitlines()
    assert (words[0], words[-1]) == ("start", "quit -t 5")


def test_a_stage_that_is_not_attached_is_named(log: Path) -> None:
    install(log, clients="101\\n103\\n")
    daemon = Mps.start()
    try:
        with pytest.raises(UnavailableError, match="not attached to MPS: verifier;"):
            daemon.check_attached({"drafter": 101, "verifier": 102, "committer": 103})
    finally:
        daemon.stop()


def test_a_daemon_that_fails_leaves_nothing(log: Path) -> None:
    install(log, status=1)
    with pytest.raises(UnavailableError, match="nvidia-cuda-mps-control failed"):
        Mps.start()
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ


def test_without_the_program_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PreconditionError, match="install NVIDIA MPS or leave mps out"):
        Mps.start()


class FakeRay:
    """A Ray that starts, and remembers in which environment."""

    folder = ""
    is_up = False

    def is_initialized(self) -> bool:
        """Say whether it runs."""
        return self.is_up

    def init(self, **options: object) -> None:
        """Start."""
        self.is_up, self.folder = True, os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")

    def shutdown(self) -> None:
        """End."""
        self.is_up = False


@pytest.mark.parametrize("asked", [True, False])
def test_a_ray_of_our_own_starts_inside_mps_and_ends_it(
    log: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    install(log, clients="101\\n")
    fake = FakeRay()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_session, "ray", fake)
    session = ray_session.RaySession("cuda", 1, mps=asked)
    assert bool(fake.folder) == asked
    if asked:
        with pytest.raises(UnavailableError, match="drafter"):
            session.check_attached({"verifier": 101, "drafter": 102})
    session.close()
    assert log.exists() == asked
    assert not asked or log.read_text().splitlines()[-1] == "quit -t 5"


def test_mps_is_refused_for_a_ray_that_is_joined(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(log)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    monkeypatch.setattr(ray_session, "ray", FakeRay())
    with pytest.raises(PreconditionError, match="start MPS with the Ray that you join"):
        ray_session.RaySession("cuda", 1, mps=True)
    assert not log.exists()


@pytest.mark.parametrize("where", [{"device": "cpu", "runtime": "ray"}, {"device": "cuda"}])
def test_mps_is_refused_where_no_processes_share_a_gpu(where: dict[str, str]) -> None:
    with pytest.raises(InvalidField, match="use runtime ray and device cuda"):
        EngineConfig(model="m", mps=True, **where)
    assert EngineConfig(model="m", mps=True, runtime="ray", device="cuda").mps
