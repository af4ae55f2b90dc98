"""Metrics through the public port: Prometheus text that agrees with what callers were told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.client import Client
from services.contract import pb
from tests.service.front import RunningServer, running
from tests.service.small import small_engine

gen = pb.generation_pb2
SERIES = re.compile(r'([a-z_]+)(\{[a-z_]+="[^"\n]*"\})? (-?[0-9.e+-]+|inf)')


@pytest.fixture(scope="module")
def server(byte_model: Path) -> Iterator[RunningServer]:
    with running(small_engine(byte_model)) as started:
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.target) as connected:
        yield connected


def _metrics(client: Client) -> dict[str, float]:
    """Return every series by name and label; refuse text that is not Prometheus'."""
    text, found, kinds = client.stub.GetMetrics(gen.GetMetricsRequest()).text, {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds, "a family once"
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            series = SERIES.fullmatch(line)
            assert series is not None, line
            key = f"{series[1]}{series[2] or ''}"
            assert key not in found, "a series once"
            found[key] = float(series[3])
    families = {re.sub(r"\{.*|_(bucket|sum|count)(\{.*)?$", "", key) for key in found}
    assert families <= set(kinds)
    return found


def test_counters_grow_by_what_callers_were_told(server: RunningServer, client: Client) -> None:
    before = _metrics(client)
    tokens = drafted = accepted = steps = 0
    for index, count in enumerate((1, 7, 40)):
        parts = list(client.stream("count", max_tokens=count, ignore_eos=True, seed=index))
        tokens += sum(len(part.token_ids) for part in parts)
        answer = client.generate("count", max_tokens=count, ignore_eos=True, seed=index)
        tokens += answer.usage.completion_tokens
        spec = answer.raw.speculation
        drafted, accepted = (
            drafted + spec.num_draft_tokens,
            accepted + spec.num_accepted_draft_tokens,
        )
        steps += spec.num_spec_steps
    after = _metrics(client)
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grown["lumotree_generation_tokens_total"] == tokens == 2 * 48
    assert grown["lumotree_prompt_tokens_total"] == 6 * len("count")
    assert grown['lumotree_request_success_total{finished_reason="length"}'] == 6
    assert grown["lumotree_time_to_first_token_seconds_count"] == 6
    prefix = "lumotree_spec_decode_num"
    assert grown[f"{prefix}_drafts_total"] >= steps
    assert 0 <= grown[f"{prefix}_accepted_tokens_total"] <= grown[f"{prefix}_draft_tokens_total"]
    load = client.stub.GetLoad(gen.GetLoadRequest()).speculation
    assert after[f"{prefix}_draft_tokens_total"] == load.num_draft_tokens >= drafted
    assert after[f"{prefix}_accepted_tokens_total"] == load.num_accepted_draft_tokens >= accepted
    assert all(value >= 0 for name, value in grown.items() if "_total" in name), "monotone"


def test_gauges_show_what_is_held(server: RunningServer, client: Client) -> None:
    stream = client.stream("held", max_tokens=900, ignore_eos=True)
    next(stream)
    busy = _metrics(client)
    stream.close()
    assert server.seconds_to_free() < 2
    idle = _metrics(client)
    assert (busy["lumotree_num_requests_running"], idle["lumotree_num_requests_running"]) == (1, 0)
    assert busy["lumotree_kv_cache_usage_perc"] > 0 == idle["lumotree_kv_cache_usage_perc"]
    assert idle["lumotree_engine_healthy"] == 1 and idle["lumotree_stage_restarts_total"] == 0
    assert idle["lumotree_host_mem_available_bytes"] > 0
    assert 'request_success_total{finished_reason="aborted"}' not in "".join(busy)
