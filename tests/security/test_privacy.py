"""S5, S6, S7: names that are no paths, logs without content, tenants apart; drafters of tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import grpc
import pytest

from services.client import Client
from services.contract import pb
from services.contract.errors import InvalidField
from services.gateway.names import model_name
from services.runtime.log import ROOT, get_logger, set_up_logs
from services.runtime.metrics import Registry
from tests.service.front import RunningServer, refusal, running
from tests.service.small import small_engine

gen = pb.generation_pb2
CANARY = "XyZZy-canary-7421"
IDS = list(CANARY.encode())
DOTS = ("..", "../..", "....", "%2e%2e", "..%2f", "..\\", ".", "~", "/", "\\", "//", "file:///")
NAMES = ("etc/passwd", "models", "lumo-tiny", "x\0y", "a b", "a\nb", "é", "con:", "*", "$HOME")


@pytest.fixture
def client(small_server: RunningServer) -> Iterator[Client]:
    with Client(small_server.target) as connected:
        yield connected


def _traversals() -> list[str]:
    made = [f"{dots}{joint}{name}" for dots in DOTS for joint in ("", "/") for name in NAMES]
    return [*made, *DOTS, *(n for n in NAMES if n != "models" and n != "lumo-tiny"), "a" * 65, "-x"]


def test_two_hundred_traversals_are_no_model_names(client: Client) -> None:
    refused = [name for name in _traversals() if not name.isascii() or not name.isalnum()]
    assert len(refused) >= 200
    for name in refused:
        with pytest.raises(InvalidField) as caught:
            model_name(name)
        assert name not in str(caught.value) or len(name) < 3
    for name in refused[::10]:
        with pytest.raises(grpc.RpcError) as called:
            client.stub.GetModelInfo(gen.GetModelInfoRequest(model=name.replace("\0", "%00")))
        assert refusal(called.value)[:2] == ("INVALID_ARGUMENT", "MODEL_NAME")


@pytest.mark.parametrize("name", ["a", "lumo-tiny", "Qwen3.5_27B", "0" * 64])
def test_a_plain_name_is_one(name: str) -> None:
    assert model_name(name) == name


@pytest.mark.parametrize(
    "drafter", ["oracle:/etc/hostname", "replay:x.jsonl", "adversarial:2:truth.json", "replay:@a"]
)
def test_a_request_opens_no_file(client: Client, drafter: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.generate("file", max_tokens=1, drafter=drafter)
    assert refusal(caught.value) == ("INVALID_ARGUMENT", "DRAFTER", "speculation.drafter")


def test_test_drafters_are_off_unless_asked_for(byte_model: Path) -> None:
    with running(small_engine(byte_model)) as server, Client(server.target) as client:
        with pytest.raises(grpc.RpcError) as caught:
            client.generate("random", max_tokens=1, drafter="random")
        assert refusal(caught.value)[1] == "DRAFTER"
        assert client.generate("mtp", max_tokens=1, drafter="mtp", ignore_eos=True).token_ids


@pytest.fixture
def debug_logs() -> Iterator[StringIO]:
    """What the service and every library log at debug level, as one text."""
    root, written = logging.getLogger(ROOT), StringIO()
    before = root.handlers[:], root.propagate, root.level, logging.raiseExceptions
    set_up_logs("debug")
    root.handlers[0].setStream(written)
    everything = logging.StreamHandler(written)
    logging.getLogger().addHandler(everything)
    yield written
    logging.getLogger().removeHandler(everything)
    root.handlers[:], root.propagate, root.level, logging.raiseExceptions = before


def _canary_calls(client: Client, server: RunningServer) -> list[str]:
    """Send the canary everywhere a caller can; return what errors say."""
    stub, said = client.stub, []
    headers = (("x-canary", CANARY), ("authorization", f"Bearer {CANARY}"))
    good = gen.GenerateRequest(text={"text": CANARY}, metadata={"note": CANARY})
    good.stop.max_tokens, good.stop.stop[:] = 4, [CANARY]
    good.cache.cache_salt = good.request_id = CANARY
    stub.Generate(good, metadata=headers)
    stub.Generate(gen.GenerateRequest(token_ids={"ids": IDS}, stop={"max_tokens": 4}))
    stub.Tokenize(gen.TokenizeRequest(text=CANARY), metadata=headers)
    for change in ({"temperature": -1.0}, {"top_p": 9.0}, {"n": 99}):
        bad = gen.GenerateRequest(text={"text": CANARY}, sampling=change)
        said.append(_error(stub.Generate, bad, headers))
    long = gen.GenerateRequest(text={"text": CANARY * 100})
    long.stop.stop.append(CANARY * 40)
    said.append(_error(stub.Generate, long, headers))
    said.append(_error(stub.Generate, gen.GenerateRequest(token_ids={"ids": IDS * 90}), headers))
    real = server.engine.group.stages[1].step
    server.engine.group.stages[1].step = _broken
    said.append(_error(stub.Generate, good, headers))
    server.engine.group._repair.join()
    assert server.engine.group.stages[1].step is not real
    return said


def _broken(message: object) -> None:
    raise ZeroDivisionError(f"planted {CANARY} {message}")


def _error(call, request, metadata) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call(request, metadata=metadata)
    trailing = b"".join(bytes(str(pair), "utf-8") for pair in caught.value.trailing_metadata())
    return f"{caught.value.details()} {trailing.decode()}"


def _forms() -> tuple[str, ...]:
    return CANARY, str(IDS)[1:-1], " ".join(map(str, IDS)), CANARY.encode().hex()


def test_content_is_in_no_log_metric_or_error(
    byte_model: Path, capfd: pytest.CaptureFixture[str], debug_logs: StringIO
) -> None:
    with running(small_engine(byte_model)) as server, Client(server.target) as client:
        said = _canary_calls(client, server)
        load = client.stub.GetLoad(gen.GetLoadRequest())
        info = client.stub.GetServerInfo(gen.GetServerInfoRequest())
        metrics = client.stub.GetMetrics(gen.GetMetricsRequest()).text
    written = debug_logs.getvalue() + "".join(capfd.readouterr())
    assert "stage broke" in written, "the logs were on"
    assert "lumotree_request_success_total" in metrics
    for form in _forms():
        for place in (written, str(load), str(info), metrics, *said):
            assert form not in place


def test_a_logged_canary_is_found(debug_logs: StringIO) -> None:
    """The control: the same search finds what is logged; a telling field name is refused."""
    get_logger("test").info("planted", why=CANARY)
    assert CANARY in debug_logs.getvalue()
    with pytest.raises(InvalidField):
        get_logger("test").info("planted", prompt=CANARY)


def test_metric_labels_are_fixed() -> None:
    counter = Registry().counter("requests", "Requests.", ("code",))
    with pytest.raises(InvalidField):
        counter.add(1, "ok", CANARY)


def _trees(client: Client, salt: str) -> list[bytes]:
    """Return the trees drafted for one fixed request of a tenant."""
    request = gen.GenerateRequest(text={"text": "tenant"}, cache={"cache_salt": salt})
    request.sampling.temperature, request.sampling.seed = 1.0, 12
    request.stop.max_tokens, request.stop.ignore_eos = 64, True
    request.speculation.trace_level = gen.TRACE_LEVEL_FULL_TREE
    steps = client.stub.Generate(request).choices[0].steps
    trees = [step.tree for step in steps]
    return [repr((t.token_ids, t.parents, t.sources)).encode() for t in trees]


def test_a_tenant_sees_nothing_of_another(client: Client) -> None:
    before = _trees(client, "b-before")
    first = _trees(client, "a")
    assert _trees(client, "b-after") == before == first, "what A finished does not reach B"
    assert _trees(client, "a") != first, "the control: A's own drafts come from its finished text"
