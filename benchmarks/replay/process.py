"""An arm's process: started, asked, stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import Any, Protocol

from benchmarks.replay.arms import Arm


class Answering(Protocol):
    """What the replay needs of an arm."""

    arm: Arm

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the result of one request."""
        ...


class ArmEnded(RuntimeError):
    """An arm's process ended instead of answering; says its status and its last words."""


class ArmProcess:
    """One arm in a child process.

    Raises  ArmEnded if the process ends instead of answering.
    """

    def __init__(self, arm: Arm, options: dict[str, Any]) -> None:
        self.arm = arm
        command = [arm.python or sys.executable, "-m", arm.worker, json.dumps(options)]
        # Open as long as the process lives; a pipe that nobody reads would block it.
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.facts = self._read()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the result of one request."""
        if self._process.stdin is None:
            raise ArmEnded("has no input")
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self._read()

    def close(self) -> None:
        """End the process."""
        try:
            # Closes the input, on which a worker ends; keeps what it says from blocking it.
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _read(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise ArmEnded("has no output")
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise self._ended()

    def _ended(self) -> ArmEnded:
        status = self._process.wait()
        self._errors.seek(0)
        said = [line.strip() for line in self._errors if line.strip()]
        return ArmEnded(f"ended with status {status}: {said[-1] if said else 'silently'}")
