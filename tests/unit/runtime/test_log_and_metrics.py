"""Logs hold no request content; metrics are well-formed Prometheus text."""

import json
import logging

import pytest

from services.contract.errors import InvalidField
from services.runtime.log import REFUSED_FIELDS, get_logger, set_up_logs
from services.runtime.metrics import Registry


def test_log_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info")
    get_logger("gateway.server").info("drained", complete=True, count=3)
    get_logger("gateway.server").debug("hidden", count=4)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["complete"], line["count"]) == (
        *("drained", "info", True),
        3,
    )
    logging.getLogger("lumotree").handlers.clear()


@pytest.mark.parametrize("name", sorted(REFUSED_FIELDS))
def test_field_of_request_content_is_refused(name: str) -> None:
    with pytest.raises(InvalidField, match="no request content"):
        get_logger("gateway").debug("received", **{name: "canary"})


def test_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidField, match="use one of"):
        set_up_logs("loud")


def test_families_render_once_each() -> None:
    registry = Registry()
    tokens = registry.counter("lumotree_tokens_total", "Tokens.", ("kind",))
    registry.gauge("lumotree_free_slots", "Free slots.", lambda: 3)
    seconds = registry.histogram("lumotree_cycle_seconds", "Cycle time.", (0.1, 1.0))
    tokens.add(2, 'a"b\n')
    for value in (0.05, 0.1, 0.5, 2.0):
        seconds.observe(value)
    assert registry.render().splitlines() == [
        "# HELP lumotree_tokens_total Tokens.",
        "# TYPE lumotree_tokens_total counter",
        'lumotree_tokens_total{kind="a\\"b\\n"} 2',
        "# HELP lumotree_free_slots Free slots.",
        "# TYPE lumotree_free_slots gauge",
        "lumotree_free_slots 3",
        "# HELP lumotree_cycle_seconds Cycle time.",
        "# TYPE lumotree_cycle_seconds histogram",
        'lumotree_cycle_seconds_bucket{le="0.1"} 2',
        'lumotree_cycle_seconds_bucket{le="1"} 3',
        'lumotree_cycle_seconds_bucket{le="+Inf"} 4',
        "lumotree_cycle_seconds_sum 2.65",
        "lumotree_cycle_seconds_count 4",
    ]


def test_misuse_is_refused() -> None:
    registry = Registry()
    counter = registry.counter("a_total", "A.", ("kind",))
    for call in (
        lambda: registry.counter("a_total", "A again."),
        lambda: registry.counter("A-b", "Bad name."),
        lambda: counter.add(-1, "x"),
        lambda: counter.add(1),
    ):
        with pytest.raises(InvalidField):
            call()
