"""A private NVIDIA MPS daemon: processes on one GPU then run without switching its context."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import Final

from services.contract.errors import PreconditionError, UnavailableError
from services.runtime.log import get_logger

_LOG = get_logger("runtime.mps")
_CONTROL: Final = "nvidia-cuda-mps-control"
_FOLDERS: Final = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
_SECONDS: Final = 20.0
_ATTACH_SECONDS: Final = 5.0


class Mps:
    """One daemon with folders of its own, which processes started after it use.

    A process that cannot reach the daemon runs without it and says nothing, so who is attached
    is asked of the daemon.
    """

    def __init__(self, control: str, folder: str) -> None:
        self._control, self._folder = control, folder

    @classmethod
    def start(cls) -> Mps:
        """Start a daemon and name it in this process's environment.

        Raises  PreconditionError where MPS is not installed; UnavailableError if it fails.
        """
        control = shutil.which(_CONTROL)
        if control is None:
            text = f"{_CONTROL} is not on PATH; install NVIDIA MPS or leave mps out"
            raise PreconditionError("MPS", text, "mps")
        made = cls(control, tempfile.mkdtemp(prefix="lumotree-mps-"))
        for name in _FOLDERS:
            os.environ[name] = made._folder
        try:
            made._run("-d", "")
            made._ask("get_server_list")
        except UnavailableError:
            made.stop()
            raise
        _LOG.info("MPS started")
        return made

    def check_attached(self, stages: Mapping[str, int]) -> None:
        """Return if the process of every stage is a client of the daemon.

        Raises  UnavailableError naming the stages that are not.
        """
        end = time.monotonic() + _ATTACH_SECONDS
        while missing := sorted(set(stages.values()) - self._clients()):
            if time.monotonic() > end:
                names = ", ".join(name for name, pid in stages.items() if pid in missing)
                text = f"not attached to MPS: {names}; leave mps out or see its log"
                raise UnavailableError("MPS", text)
            time.sleep(0.1)

    def stop(self) -> None:
        """End the daemon and remove its folders."""
        try:
            self._ask("quit -t 5")
        except UnavailableError as error:
            _LOG.warning("MPS ended late", why=error.message)
        for name in _FOLDERS:
            os.environ.pop(name, None)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _clients(self) -> set[int]:
        found: set[int] = set()
        for server in self._ask("get_server_list").split():
            if server.isdigit():
                words = self._ask(f"get_client_list {server}").split()
                found |= {int(word) for word in words if word.isdigit()}
        return found

    def _ask(self, command: str) -> str:
        return self._run("", command + "\n")

    def _run(self, option: str, text: str) -> str:
        command = [self._control, *([option] if option else [])]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program without a shell
                command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            why = f"{_CONTROL} failed ({type(error).__name__}); leave mps out or see its log"
            raise UnavailableError("MPS", why) from error
        return done.stdout
