"""An arm's process: started, asked, stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Protocol

from benchmarks.replay.arms import Arm


class Answering(Protocol):
    """What the replay needs of an arm."""

    arm: Arm

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the result of one request."""
        ...


class ArmProcess:
    """One arm in a child process.

    Raises  RuntimeError if the process ends instead of answering; the message has its status.
    """

    def __init__(self, arm: Arm, options: dict[str, Any]) -> None:
        self.arm = arm
        command = [arm.python or sys.executable, "-m", arm.worker, json.dumps(options)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts = self._read()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the result of one request."""
        if self._process.stdin is None:
            raise RuntimeError(f"arm {self.arm.name} has no input")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise RuntimeError(f"arm {self.arm.name} has no output")
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        status = self._process.wait()
        raise RuntimeError(f"arm {self.arm.name} ended with status {status}")
