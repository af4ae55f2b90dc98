"""Stage groups on several hosts."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_groups_on_two_hosts_answer_alike_and_outlive_a_host() -> None:
    command = [sys.executable, "-m", "tests.service.two_hosts"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "served on the new host" in ended.stdout
