"""vLLM as a second engine behind the same port: a fake one, and the real one from .peers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.client import Client
from services.commands.options import EMBEDDED_MODEL
from services.contract import pb
from services.contract.config import EngineConfig
from services.contract.errors import InvalidField
from services.gateway.vllm.engine import VllmEngine
from services.gateway.vllm.options import VllmOptions
from tests.service.fake_vllm import SCRIPT, FakeAsyncLLM, install
from tests.service.front import RunningServer, make_engine, refusal, running
from tests.service.small import EOS, VOCAB, write_byte_model
from tests.tidy.sources import ROOT

gen = pb.generation_pb2
PROMPT = "def add"
TEXT = SCRIPT.decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_byte_model(tmp_path_factory.mktemp("bytes")))


@pytest.fixture(scope="module", autouse=True)
def fake() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        yield


@contextmanager
def served(folder: str, speculative: str = "off") -> Iterator[RunningServer]:
    """Yield a server over the fake."""
    config = EngineConfig(folder, context_length=512, max_sequences=2)
    with running(VllmEngine(VllmOptions(config, speculative))) as server:
        yield server


@pytest.fixture(scope="module")
def server(folder: str) -> Iterator[RunningServer]:
    with served(folder) as started:
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.target) as connected:
        yield connected


@pytest.fixture
def llm(server: RunningServer) -> FakeAsyncLLM:
    return server.engine._llm._llm


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_stream_joined_equals_unary(client: Client) -> None:
    whole = client.generate(PROMPT, max_tokens=60)
    parts = list(client.stream(PROMPT, max_tokens=60))
    assert "".join(part.text for part in parts) == whole.text == (TEXT * 2)[:60]
    assert sum((part.token_ids for part in parts), ()) == whole.token_ids
    assert bytes(whole.token_ids) == (SCRIPT * 2)[:60]
    assert len([part for part in parts if part.text]) > 10


@pytest.mark.parametrize("count", range(12))
def test_token_budget_is_exact(client: Client, count: int) -> None:
    answer = client.generate(PROMPT, max_tokens=count)
    assert (answer.text, len(answer.token_ids)) == (TEXT[:count], count)
    assert answer.finish_reason == "length"
    assert answer.usage.prompt_tokens == len(PROMPT)
    assert answer.usage.completion_tokens == count


def test_stop_string_cuts_text_ids_and_usage_alike(client: Client, llm: FakeAsyncLLM) -> None:
    answer = client.generate(PROMPT, max_tokens=400, stop=["turn"], logprobs=0)
    assert answer.text == TEXT[: TEXT.index("turn")]
    assert bytes(answer.token_ids) == SCRIPT[: SCRIPT.index(b"turn") + 4]
    assert answer.finish_reason == "stop"
    assert answer.raw.choices[0].matched_stop.text == "turn"
    assert answer.usage.completion_tokens == len(answer.token_ids)
    assert len(answer.raw.choices[0].logprobs) == len(answer.token_ids)
    _until(lambda: not llm.live)  # vLLM was told to stop


def test_stop_id_ends_without_its_text(client: Client) -> None:
    answer = client.generate(PROMPT, max_tokens=50, stop_token_ids=[ord("(")])
    assert (answer.text, answer.token_ids[-1]) == ("def add", ord("("))
    assert answer.raw.choices[0].matched_stop.token_id == ord("(")
    later = client.generate(PROMPT, max_tokens=50, stop_token_ids=[ord("a")], min_tokens=6)
    assert later.text == TEXT[: TEXT.index("a, b")]


def test_log_probabilities_are_of_their_tokens(client: Client) -> None:
    rows = client.generate(PROMPT, max_tokens=5, logprobs=2).raw.choices[0].logprobs
    assert [row.chosen.token_id for row in rows] == list(SCRIPT[:5])
    assert all([top.token_id for top in row.top] == [200, 201] for row in rows)
    assert {row.chosen.logprob for row in rows} == {-2.0}
    bare = client.generate(PROMPT, max_tokens=5, logprobs=0).raw.choices[0].logprobs
    assert all(not row.top for row in bare)


def test_every_sampling_value_reaches_vllm(client: Client, llm: FakeAsyncLLM) -> None:
    given = {
        "temperature": 0.5,
        "top_p": 0.75,
        "top_k": 7,
        "min_p": 0.125,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "repetition_penalty": 1.5,
    }
    llm.asked.clear()
    listed = {"allowed_token_ids": [1, 2], "logit_bias": {3: 1.5}, "min_tokens": 2}
    client.generate(PROMPT, seed=9, n=2, max_tokens=4, stop_token_ids=[5], **given, **listed)
    prompts, params, names = zip(*llm.asked, strict=True)
    assert prompts[0] == {"prompt_token_ids": list(PROMPT.encode())}
    assert {name: getattr(params[0], name) for name in given} == given
    assert (params[0].allowed_token_ids, params[0].logit_bias) == ([1, 2], {3: 1.5})
    assert (params[0].max_tokens, params[0].min_tokens) == (4, 2)
    assert params[0].stop_token_ids == [EOS, 5] and params[0].ignore_eos
    assert sorted(p.seed for p in params) == [9, 10] and len(set(names)) == 2
    client.generate(PROMPT, max_tokens=1, ignore_eos=True)
    assert llm.asked[-1][1].stop_token_ids == []


REFUSED = [
    ({"banned_token_ids": [3]}, "sampling.banned_token_ids"),
    ({"tie_policy": 1}, "sampling.tie_policy"),
    ({"shape": "hydra27"}, "speculation.shape"),
    ({"drafter": "mtp"}, "speculation.drafter"),
    ({"suffix": False}, "speculation.suffix"),
    ({"mode": gen.SPECULATION_MODE_TREE}, "speculation.mode"),
    ({"mode": gen.SPECULATION_MODE_CHAIN}, "speculation.mode"),
    ({"digests": True}, "speculation.digests"),
    ({"trace_level": gen.TRACE_LEVEL_STEPS}, "speculation.trace_level"),
    ({"trace_level": gen.TRACE_LEVEL_FULL_TREE}, "speculation.trace_level"),
    ({"logprobs": 1, "logprobs_mode": gen.LOGPROBS_MODE_PROCESSED}, "output.logprobs_mode"),
]


@pytest.mark.parametrize(("options", "field"), REFUSED)
def test_what_vllm_cannot_honour_is_refused_by_name(
    client: Client, llm: FakeAsyncLLM, options: dict[str, Any], field: str
) -> None:
    llm.asked.clear()
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(PROMPT, max_tokens=2, **options)
    assert refusal(caught.value)[0] == "UNIMPLEMENTED"
    assert refusal(caught.value)[2] == field
    assert not llm.asked


def test_what_equals_its_only_way_is_taken(client: Client) -> None:
    plain = {"mode": gen.SPECULATION_MODE_OFF, "digests": False}
    assert client.generate(PROMPT, max_tokens=2, **plain).token_ids
    assert client.generate(PROMPT, max_tokens=2, mode=gen.SPECULATION_MODE_AUTO).token_ids


def test_bad_prompts_and_traces_are_refused(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(PROMPT, max_tokens=512)
    assert refusal(caught.value) == ("INVALID_ARGUMENT", "CONTEXT_LENGTH", "prompt")
    with pytest.raises(grpc.RpcError) as caught:
        next(client.stub.WatchSpecTrace(gen.WatchSpecTraceRequest()))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_cancel_reaches_vllm(client: Client, llm: FakeAsyncLLM, server: RunningServer) -> None:
    stream = client.stream(PROMPT, max_tokens=480, request_id="long")
    next(stream)
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(PROMPT, max_tokens=1, request_id="long")
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    reply = client.stub.Abort(gen.AbortRequest(request_ids=["long", "nobody"]))
    assert [result.found for result in reply.results] == [True, False]
    assert list(stream)[-1].finish_reason == "aborted"
    _until(lambda: not llm.live)


def test_a_caller_that_leaves_stops_vllm(client: Client, llm: FakeAsyncLLM) -> None:
    stream = client.stream(PROMPT, max_tokens=480)
    next(stream)
    assert llm.live
    stream.close()
    _until(lambda: not llm.live)
    assert client.stub.GetLoad(gen.GetLoadRequest()).running == 0


def test_load_counts_what_runs_and_waits(
    client: Client, llm: FakeAsyncLLM, server: RunningServer
) -> None:
    llm.gate.clear()
    streams = [client.stub.GenerateStream(_request()) for _ in range(3)]
    try:
        _until(lambda: client.stub.GetLoad(gen.GetLoadRequest()).waiting == 1)
        load = client.stub.GetLoad(gen.GetLoadRequest())
        assert (load.running, load.slots_total, load.pages_total) == (2, 2, 0)
    finally:
        for stream in streams:
            stream.cancel()
        server.engine._loop.call_soon_threadsafe(llm.gate.set)
    _until(lambda: not llm.live)


def test_time_limit_ends_a_sequence(client: Client, llm: FakeAsyncLLM) -> None:
    answer = client.generate(PROMPT, max_tokens=480, time_limit_ms=20)
    assert answer.finish_reason == "time_limit"
    assert len(answer.token_ids) < 480 and not llm.live


def test_a_failing_vllm_is_internal_and_the_server_lives(client: Client, llm: FakeAsyncLLM) -> None:
    llm.failure = RuntimeError("secret prompt")
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(PROMPT, max_tokens=5)
    llm.failure = None
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in caught.value.details()
    assert client.generate(PROMPT, max_tokens=5).text == TEXT[:5]


def test_a_dead_vllm_is_unavailable_and_not_serving(server: RunningServer, client: Client) -> None:
    llm = server.engine._llm._llm
    with grpc.insecure_channel(server.target) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def serves() -> bool:
            return health.Check(health_pb2.HealthCheckRequest(service="engine")).status == 1

        assert serves()
        llm.errored = True
        _until(lambda: not serves())
        with pytest.raises(grpc.RpcError) as caught:
            client.generate(PROMPT, max_tokens=1)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        llm.errored = False
        _until(serves)


def test_facts_tell_the_engine(client: Client) -> None:
    info = client.stub.GetServerInfo(gen.GetServerInfoRequest())
    assert info.config["engine"] == "vllm"
    model = client.stub.GetModelInfo(gen.GetModelInfoRequest())
    assert (model.shape, model.max_rows, model.tie_policy) == ("root", 0, 0)
    assert not any(feature.tree for feature in model.features)
    effective = client.generate(PROMPT, max_tokens=1).raw.effective
    assert effective.shape == "root" and effective.sampling.tie_policy == 0


@pytest.mark.parametrize(("method", "source"), [("mtp", "MTP_SPINE"), ("suffix", "SUFFIX_TAIL")])
def test_speculation_is_asked_and_its_figures_are_vllms(
    folder: str, method: str, source: str
) -> None:
    with served(folder, f"{method}-3") as server, Client(server.target) as client:
        arguments = FakeAsyncLLM.made.arguments
        assert arguments["speculative_config"] == {"method": method, "num_speculative_tokens": 3}
        told = client.generate(PROMPT, max_tokens=20).raw
        spec = told.speculation
        assert (spec.num_spec_steps, spec.num_draft_tokens) == (6, 18)
        assert list(spec.acceptance_histogram) == [2, 1, 0, 3]
        assert list(spec.accepted_by_depth) == [4, 3, 3]
        assert spec.num_accepted_draft_tokens == 10 == spec.sources[0].accepted
        assert pb.tree_pb2.NodeSource.Name(spec.sources[0].source) == f"NODE_SOURCE_{source}"
        assert told.effective.shape == "chain-3"
        cut = client.generate(PROMPT, max_tokens=20, stop=["add"]).raw.speculation
        assert cut.num_spec_steps == 0  # vLLM had not told yet
    assert FakeAsyncLLM.made.is_closed


def test_a_kind_of_model_that_only_vllm_runs_is_served(folder: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((Path(folder) / "tokenizer.json").read_bytes())
    config = {"model_type": "other", "vocab_size": VOCAB, "eos_token_id": [EOS]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with served(str(tmp_path), "mtp-3") as server, Client(server.target) as client:
        answer = client.generate(PROMPT, max_tokens=5, strict=True)
        assert answer.text == TEXT[:5] and not answer.raw.warnings
        model = client.stub.GetModelInfo(gen.GetModelInfoRequest())
        assert (model.architecture, model.vocab_size) == ("other", VOCAB)
        assert list(model.eos_token_ids) == [EOS]


@pytest.mark.parametrize("speculative", ["mtp", "mtp-0", "mtp-16", "eagle-3", ""])
def test_other_speculation_is_refused(folder: str, speculative: str) -> None:
    with pytest.raises(InvalidField):
        VllmOptions(EngineConfig(folder), speculative)


def test_without_vllm_one_message_says_what_to_do() -> None:
    command = [sys.executable, "-m", "services.cli", "serve", "--port", "0", "--engine"]
    done = subprocess.run([*command, "vllm"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "make peers" in done.stderr and done.stderr.count("\n") == 1
    other = subprocess.run([*command, "other"], cwd=ROOT, capture_output=True, text=True)
    assert other.returncode == 2 and "lumotree or vllm" in other.stderr


def _request() -> gen.GenerateStreamRequest:
    return gen.GenerateStreamRequest(text={"text": PROMPT}, stop={"max_tokens": 100})


PEER = ROOT / ".peers" / "bin" / "lumotree"
PROMPTS = ("def fibonacci(n):\n", "import os\nimport sys\n\n\ndef main():\n", "class Stack:\n")


@contextmanager
def _peer() -> Iterator[str]:
    """Yield the address of a server over the real vLLM."""
    command = [PEER, "serve", "--engine", "vllm", "--port", "0", "--max-model-len", "512"]
    process = subprocess.Popen(
        [*command, "--model", EMBEDDED_MODEL], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        lines = []
        for line in process.stderr or ():
            lines.append(line)
            found = re.search(r"gRPC on (\S+)", line)
            if found:
                break
        assert found, "".join(lines)
        yield found[1]
    finally:
        process.terminate()
        process.wait(60)


# Collected only where `make peers` has been run: elsewhere there is nothing to show.
if PEER.is_file():

    @pytest.mark.slow
    def test_real_vllm_writes_what_our_engine_writes() -> None:
        """Greedy texts begin alike; rounding differs (bf16 there, float32 here)."""
        options = {"max_tokens": 48, "temperature": 0.0, "ignore_eos": True}
        with running(make_engine()) as server, Client(server.target) as client:
            ours = [client.generate(prompt, **options).token_ids for prompt in PROMPTS]
        with _peer() as target, Client(target) as client:
            theirs = [client.generate(prompt, **options) for prompt in PROMPTS]
            parts = list(client.stream(PROMPTS[0], **options))
            cut = client.generate(PROMPTS[0], stop=["\n"], **options)
        assert all(len(answer.token_ids) == 48 for answer in theirs)
        assert "".join(part.text for part in parts) == theirs[0].text
        assert cut.text == theirs[0].text.split("\n")[0]
        equal = [_common(a, b.token_ids) for a, b in zip(ours, theirs, strict=True)]
        assert min(equal) >= 4 and sum(equal) >= 48, equal


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    pairs = zip(first, second, strict=True)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(first))
