"""Run inside the test host: ray up, a generation, ray down; one JSON object to a file.

Arguments: number of hosts, then the result's path.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc

from services.client import Client

TARGET = "127.0.0.1:50051"
PROMPT = "def fibonacci(n):\n"
OPTIONS = {"max_tokens": 48, "temperature": 0.8, "seed": 7}
READY_SECONDS, GONE_SECONDS = 240.0, 90.0
CLUSTER = "/mnt/cluster.yaml"


def ray(*arguments: str) -> tuple[str, float]:
    """Run a ray command; return what it printed and the seconds it took."""
    begun = time.monotonic()
    command = ["/mnt/bin/ray", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"$ ray {' '.join(arguments)}\n{done.stdout}", flush=True)
    if done.returncode:
        raise SystemExit(f"ray {arguments[0]} ended with {done.returncode}")
    return done.stdout, time.monotonic() - begun


def wait_ready(token: str) -> float:
    """Wait until the service answers; return the seconds."""
    begun = time.monotonic()
    while True:
        try:
            with Client(TARGET, token=token) as client:
                client.generate("a", max_tokens=1, timeout=20)
            return time.monotonic() - begun
        except grpc.RpcError:
            if time.monotonic() - begun > READY_SECONDS:
                raise
            time.sleep(1)


def refusal(token: str | None) -> str:
    """Return the status name of a call with this token."""
    try:
        with Client(TARGET, token=token) as client:
            client.generate("a", max_tokens=1, timeout=20)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def processes() -> list[str]:
    """Return the command lines of Ray's and our processes in this pid namespace, but this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        line = " ".join(words).strip()
        is_ours = any(part in line for part in ("ray::", "/ray/", "lumotree serve"))
        if is_ours and int(folder.name) != os.getpid():
            found.append(line[:160])
    return found


def kill_service() -> int:
    """End the serving process as a crash would; return how many were ended."""
    ended = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = (folder / "cmdline").read_text().split("\0")
            if words[1:3] == ["/mnt/bin/lumotree", "serve"]:
                os.kill(int(folder.name), signal.SIGKILL)
                ended += 1
    return ended


def wait_gone() -> tuple[float, list[str]]:
    """Wait until no process of the cluster is left; return the seconds and who is."""
    begun = time.monotonic()
    while (left := processes()) and time.monotonic() - begun < GONE_SECONDS:
        time.sleep(0.5)
    return time.monotonic() - begun, left


def listening() -> list[int]:
    """Return the ports that listen on any address."""
    rows = []
    for name in ("tcp", "tcp6"):
        rows += Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    split = [row.split() for row in rows]
    return sorted({int(row[1].rsplit(":", 1)[1], 16) for row in split if row[3] == "0A"})


def main() -> None:
    """Go through a cluster's life."""
    hosts, result = int(sys.argv[1]), Path(sys.argv[2])
    token = Path("/mnt/models/api-key").read_text().strip()
    found: dict[str, Any] = {}
    _, found["up_s"] = ray("up", "-y", "--no-config-cache", CLUSTER)
    found["ready_s"] = wait_ready(token)
    with Client(TARGET, token=token) as client:
        answer = client.generate(PROMPT, timeout=120, **OPTIONS)
    found["ids"] = list(answer.token_ids)
    found["refused"] = [refusal(None), refusal("wrong" * 8)]
    found["ports"] = listening()
    found["running"] = processes()
    found["status"], _ = ray("exec", CLUSTER, "ray status")
    found["hosts"] = hosts
    found["killed"] = kill_service()
    found["again_s"] = wait_ready(token)
    _, found["down_s"] = ray("down", "-y", CLUSTER)
    found["gone_s"], found["left"] = wait_gone()
    found["after"] = refusal(token)
    found["shared_memory"] = sorted(path.name for path in Path("/dev/shm").iterdir())  # noqa: S108
    result.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
