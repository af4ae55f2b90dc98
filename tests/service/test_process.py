"""R10, R12, S1: `lumotree serve` as a process: ready line, sockets, drain, refusals at start."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.cli import main
from services.client import Client
from tests.tidy.sources import ROOT

READY = re.compile(r"gRPC on (127\.0\.0\.1:\d+)")
_MAPPED = "0000000000000000FFFF0000"  # an IPv4 address in an IPv6 socket
LONG = {"max_tokens": 800, "ignore_eos": True}


class Served:
    """A `lumotree serve` process whose output goes to a file."""

    def __init__(self, model: Path, log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "services.cli", "serve", "--model", str(model)]
        self.log = log
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--threads", "1", *options],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log.open("wb"),
        )
        self.target = self._wait_ready()

    def text(self) -> str:
        """Return what the process has written so far."""
        return self.log.read_text(encoding="utf-8")

    def _wait_ready(self) -> str:
        end = time.monotonic() + 180
        while time.monotonic() < end and self.process.poll() is None:
            if found := READY.search(self.text()):
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"not ready: {self.text()}")


@contextmanager
def served(model: Path, log: Path, *options: str) -> Iterator[Served]:
    started = Served(model, log, *options)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait(10)


def listening(pid: int) -> set[str]:
    """Return the addresses on which a process and its children listen, from /proc."""
    owned = {os.readlink(link) for one in tree(pid) for link in _descriptors(one)}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in owned:
                host, port = fields[1].split(":")
                found.add(f"{host.removeprefix(_MAPPED)}:{int(port, 16)}")
    return found


def tree(pid: int) -> list[int]:
    """Return a process and everything below it."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [pid, *(one for child in children for one in tree(child))]


def _descriptors(pid: int) -> list[str]:
    folder = Path(f"/proc/{pid}/fd")
    return [str(link) for link in folder.iterdir() if link.is_symlink()]


def _health(target: str) -> int:
    with grpc.insecure_channel(target) as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status


def test_a_served_process_listens_once_drains_and_ends(byte_model: Path, tmp_path: Path) -> None:
    options = "--max-model-len", "1024", "--served-model-name", "tiny-1"
    with served(byte_model, tmp_path / "log", *options) as server, Client(server.target) as client:
        host = f"0100007F:{server.target.rpartition(':')[2]}"
        assert listening(server.process.pid) == {host}
        assert client.generate("named", max_tokens=2, model="tiny-1").raw.model == "tiny-1"
        stream = client.stream("drain", **LONG)
        tokens = len(next(stream).token_ids)
        with grpc.insecure_channel(server.target) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            begun = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert time.monotonic() - begun < 0.1
            with pytest.raises(grpc.RpcError) as caught:
                client.generate("late", max_tokens=1)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            watch.cancel()
        parts = list(stream)
        assert tokens + sum(len(part.token_ids) for part in parts) == LONG["max_tokens"]
        assert parts[-1].finish_reason == "length"
        assert server.process.wait(20) == 0
    assert "Traceback" not in server.text()
    for sample in ("lumotree", "float32", "pages", "self-test", "grpcurl", "Client("):
        assert sample in server.text(), server.text()


@pytest.mark.slow
def test_a_second_signal_stops_at_once(byte_model: Path, tmp_path: Path) -> None:
    options = "--max-model-len", "65536", "--shutdown-timeout", "100"
    with served(byte_model, tmp_path / "log", *options) as server, Client(server.target) as client:
        stream = client.stream("drain", max_tokens=60000, ignore_eos=True)
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None, "one signal lets the request go on"
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert time.monotonic() - begun < 5
        assert [part.finish_reason for part in stream][-1] == "aborted"


def _wrong_weights(model: Path, folder: Path) -> list[str]:
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((model / name).read_bytes())
    (folder / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:5000])
    return ["--model", str(folder)]


def _unknown_key(model: Path, folder: Path) -> list[str]:
    folder.mkdir()
    (folder / "serve.toml").write_text("max_sequnces = 4\n")
    return ["--model", str(model), "--config", str(folder / "serve.toml")]


def _missing_certificates(model: Path, folder: Path) -> list[str]:
    files = "--tls-cert", str(folder / "none.pem"), "--tls-key", str(folder / "none.key")
    return ["--model", str(model), *files]


def _bad_name(model: Path, folder: Path) -> list[str]:
    return ["--model", str(model), "--served-model-name", "../etc"]


def _no_folder(model: Path, folder: Path) -> list[str]:
    return ["--model", str(folder)]


def _record_unasked(model: Path, folder: Path) -> list[str]:
    return ["--model", str(model), "--record", str(folder)]


def _absent_device(model: Path, folder: Path) -> list[str]:
    return ["--model", str(model), "--device", "cuda:99"]


def _port_beyond_ports(model: Path, folder: Path) -> list[str]:
    return ["--model", str(model), "--port", "99999"]


def _negative_grace(model: Path, folder: Path) -> list[str]:
    return ["--model", str(model), "--shutdown-timeout", "-5"]


def _foreign_contract(model: Path, folder: Path) -> list[str]:
    """A checkpoint of a kind this build does not run."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "other"}))
    return ["--model", str(folder)]


WRONG = [
    (_absent_device, "cuda:99"),
    (_port_beyond_ports, "--port"),
    (_negative_grace, "--shutdown-timeout"),
    (_foreign_contract, "model_type"),
    (_wrong_weights, "model.safetensors"),
    (_unknown_key, "max_sequnces"),
    (_missing_certificates, "tls-cert"),
    (_bad_name, "served-model-name"),
    (_no_folder, "absent"),
    (_record_unasked, "--record-consent"),
]


@pytest.mark.parametrize(("make", "names"), WRONG)
def test_what_is_wrong_at_start_is_said_once(
    make, names: str, byte_model: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    options = make(byte_model, tmp_path / "absent")
    monkeypatch.setattr(sys, "argv", ["lumotree", "serve", "--port", "0", *options])
    with pytest.raises(SystemExit) as caught:
        main()
    written = capsys.readouterr().err.strip()
    assert caught.value.code == 2
    assert names in written and "Traceback" not in written
    said = [line for line in written.splitlines() if re.match("lumotree:|. Invalid value", line)]
    assert len(said) == 1, written


def test_a_taken_port_is_said_before_the_model_is_loaded(
    byte_model: Path, monkeypatch, capsys
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        options = ["serve", "--model", str(byte_model), "--port", port]
        monkeypatch.setattr(sys, "argv", ["lumotree", *options])
        with pytest.raises(SystemExit) as caught:
            main()
    written = capsys.readouterr().err
    assert caught.value.code == 2
    assert port in written and "Traceback" not in written
    assert "weights" not in written
