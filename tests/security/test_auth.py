"""Bearer tokens on every method but health, and the mutual-TLS matrix."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
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


def test_wrong_server_name_is_refused(
    mutual: RunningServer, certificates: tuple[Path, Path]
) -> None:
    right = certificates[0]
    files = {"cert": right / "client.pem", "key": right / "client.key"}
    target = f"127.0.0.2:{mutual.server.port}"
    with (
        Client(target, root_cert=right / "ca.pem", **files) as client,
        pytest.raises(grpc.RpcError) as caught,
    ):
        client.generate("x", max_tokens=1, timeout=2)
    assert caught.value.code() in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    )


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
