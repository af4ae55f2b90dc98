"""Bearer tokens on every method but health, and the mutual-TLS matrix."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.client import Client
from services.contract import pb
from services.contract.errors import InvalidField
from services.gateway.server import read_token
from services.gateway.tls import TlsFiles
from tests.service.front import RunningServer, running

gen = pb.generation_pb2
TOKEN = "-".join(["a", "token", "of", "test", "length"])
SERVICE = gen.DESCRIPTOR.services_by_name["GenerationService"]
CERTS = Path(__file__).parents[2] / "deploy" / "certs.sh"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    with running(token=TOKEN) as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of two authorities."""
    folders = tmp_path_factory.mktemp("right"), tmp_path_factory.mktemp("other")
    for folder in folders:
        subprocess.run(["bash", CERTS, folder, "localhost"], check=True, capture_output=True)
    return folders


@pytest.fixture(scope="module")
def mutual(certificates: tuple[Path, Path]) -> Iterator[RunningServer]:
    right = certificates[0]
    files = TlsFiles(right / "server.pem", right / "server.key", right / "ca.pem")
    with running(tls=files) as server:
        yield server


@pytest.mark.parametrize("method", [method.name for method in SERVICE.methods])
@pytest.mark.parametrize("token", ["", "Bearer wrong", TOKEN, "Bearer " + TOKEN[:-1]])
def test_every_method_refuses_a_wrong_token(
    guarded: RunningServer, method: str, token: str
) -> None:
    kind = SERVICE.methods_by_name[method].input_type._concrete_class
    metadata = (("authorization", token),) if token else ()
    with Client(guarded.target) as client, pytest.raises(grpc.RpcError) as caught:
        reply = getattr(client.stub, method)(kind(), metadata=metadata, timeout=5)
        list(reply)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_right_token_and_health_pass(guarded: RunningServer) -> None:
    with Client(guarded.target, token=TOKEN) as client:
        assert client.generate("x", max_tokens=1).token_ids
    with grpc.insecure_channel(guarded.target) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_needs_the_token_too(guarded: RunningServer) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with grpc.insecure_channel(guarded.target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.ServerReflectionInfo(iter([request])))
        allowed = (("authorization", f"Bearer {TOKEN}"),)
        replies = list(stub.ServerReflectionInfo(iter([request]), metadata=allowed))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    listed = {service.name for service in replies[0].list_services_response.service}
    assert SERVICE.full_name in listed


def test_short_token_is_refused_at_start(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("short\n")
    with pytest.raises(InvalidField):
        read_token(file)


def test_only_the_right_certificate_passes(
    mutual: RunningServer, certificates: tuple[Path, Path]
) -> None:
    right, other = certificates
    target = f"localhost:{mutual.server.port}"

    def reach(**files: Path) -> grpc.StatusCode | None:
        with Client(target, **files) as client:
            try:
                client.generate("x", max_tokens=1, timeout=2)
            except grpc.RpcError as error:
                return error.code()
        return None

    ca, pair = right / "ca.pem", {"cert": right / "client.pem", "key": right / "client.key"}
    foreign = {"cert": other / "client.pem", "key": other / "client.key"}
    assert reach(root_cert=ca, **pair) is None
    refused = (
        reach(root_cert=ca),
        reach(root_cert=ca, **foreign),
        reach(root_cert=other / "ca.pem", **pair),
        reach(),
    )
    assert set(refused) == {grpc.StatusCode.UNAVAILABLE}


def _channel(target: str, folder: Path, name: str, **options: str) -> grpc.Channel:
    """Return a channel of the client certificate `name` of a folder."""
    pair = (folder / f"{name}.key").read_bytes(), (folder / f"{name}.pem").read_bytes()
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes(), *pair)
    return grpc.secure_channel(target, credentials, tuple(options.items()))


def _ask(channel: grpc.Channel) -> tuple[grpc.StatusCode | None, float]:
    """Return the code of a refused call, None for an answered one, and its seconds."""
    begun = time.monotonic()
    with channel:
        try:
            pb.generation_pb2_grpc.GenerationServiceStub(channel).GetLoad(
                gen.GetLoadRequest(), timeout=2
            )
        except grpc.RpcError as error:
            return error.code(), time.monotonic() - begun
    return None, time.monotonic() - begun


@pytest.mark.parametrize(("name", "passes"), [("localhost", True), ("other.example", False)])
def test_wrong_server_name_is_refused(
    mutual: RunningServer, certificates: tuple[Path, Path], name: str, passes: bool
) -> None:
    """The control is in the row: the same connection by the certificate's own name."""
    override = {"grpc.ssl_target_name_override": name}
    channel = _channel(f"localhost:{mutual.server.port}", certificates[0], "client", **override)
    assert _ask(channel)[0] is (None if passes else grpc.StatusCode.UNAVAILABLE)


def _issue(folder: Path, name: str, common_name: str, *validity: str) -> None:
    """Make a client certificate of the authority in `folder`."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subject = ["-subj", f"/CN={common_name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"]
    signed = ["-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
    for command in (
        ["openssl", "req", *key, *subject],
        ["openssl", "x509", "-req", *signed, *(validity or ("-days", "1")), "-out", f"{name}.pem"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_expired_certificate_is_refused(
    mutual: RunningServer, certificates: tuple[Path, Path]
) -> None:
    folder, target = certificates[0], f"localhost:{mutual.server.port}"
    _issue(folder, "fresh", "fresh")
    _issue(folder, "expired", "expired", "-days", "-1")
    assert _ask(_channel(target, folder, "expired"))[0] is grpc.StatusCode.UNAVAILABLE
    assert _ask(_channel(target, folder, "fresh"))[0] is None, "the control"


def test_a_handshake_is_refused_within_fifty_milliseconds(
    mutual: RunningServer, certificates: tuple[Path, Path]
) -> None:
    target, seconds = f"localhost:{mutual.server.port}", []
    for _ in range(5):
        code, took = _ask(_channel(target, certificates[1], "client"))
        assert code is grpc.StatusCode.UNAVAILABLE
        seconds.append(took)
    assert min(seconds) < 0.05, seconds


def test_a_tenant_neither_sees_nor_stops_requests_of_another(
    mutual: RunningServer, certificates: tuple[Path, Path]
) -> None:
    """S7: by client certificate. Steps hold tokens; ids may hold anything."""
    folder, target = certificates[0], f"localhost:{mutual.server.port}"
    _issue(folder, "second", "second tenant")
    request = gen.GenerateStreamRequest(request_id="mine", text={"text": "secret"})
    request.stop.max_tokens, request.stop.ignore_eos = 400, True
    with _channel(target, folder, "client") as ours, _channel(target, folder, "second") as other:
        owner = pb.generation_pb2_grpc.GenerationServiceStub(ours)
        stranger = pb.generation_pb2_grpc.GenerationServiceStub(other)
        watches = {
            who: stub.WatchSpecTrace(gen.WatchSpecTraceRequest(request_id=name), timeout=4)
            for who, stub, name in (
                ("all", stranger, ""),
                ("named", stranger, "mine"),
                ("owner", owner, ""),
            )
        }
        pool = ThreadPoolExecutor(3)
        steps = {who: pool.submit(_steps, watch) for who, watch in watches.items()}
        time.sleep(0.2)
        call = owner.GenerateStream(request)
        assert next(call).HasField("start")
        assert [
            r.found for r in stranger.Abort(gen.AbortRequest(request_ids=["mine"])).results
        ] == [False]
        assert not stranger.Abort(gen.AbortRequest(all=True)).results
        same = gen.GenerateRequest(request_id="mine", text={"text": "x"}, stop={"max_tokens": 1})
        assert stranger.Generate(same).request_id == "mine", "their own id of that name"
        assert len(list(call)) > 1
        counts = {who: len(seen.result()) for who, seen in steps.items()}
    assert counts["all"] == counts["named"] == 1, "their own request's one step"
    assert counts["owner"] > 20, "the control: the owner sees its own"


def _steps(watch: Iterator[gen.WatchSpecTraceResponse]) -> list[gen.WatchSpecTraceResponse]:
    """Return what a watch shows until its deadline."""
    seen = []
    with pytest.raises(grpc.RpcError) as caught:
        for step in watch:
            seen.append(step)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return seen


def test_renewed_certificates_are_served_without_a_restart(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        subprocess.run(["bash", CERTS, folder, "localhost"], check=True, capture_output=True)
    files = TlsFiles(old / "server.pem", old / "server.key")
    with running(tls=files) as server:
        target = f"localhost:{server.server.port}"
        with Client(target, root_cert=old / "ca.pem") as client:
            assert client.generate("x", max_tokens=1).token_ids
        for name in ("server.pem", "server.key"):
            (old / name).write_bytes((new / name).read_bytes())
        with Client(target, root_cert=new / "ca.pem") as client:
            assert client.generate("x", max_tokens=1, timeout=5).token_ids


def test_missing_certificate_is_refused_before_serving(tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match="tls-cert"):
        TlsFiles(tmp_path / "none.pem", tmp_path / "none.key").check()
