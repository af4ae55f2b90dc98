"""`lumotree bench`: nothing is timed behind a red gate, and runs are compared row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench import measure
from benchmarks.bench.measure import Measure, Row
from benchmarks.bench.table import read_rates, show
from benchmarks.replay.arms import ARMS, Arm
from services.contract.errors import InvalidField


class _Engine:
    """The one thing that a measure asks an engine for; answers are given by the test."""

    def next_request_id(self) -> str:
        return "r"


def _answers(wrong: str) -> Any:
    def answer(engine: object, arm: Arm, asked: dict[str, Any]) -> dict[str, Any]:
        del engine
        ids = [asked["sampling"]["seed"]] * asked["max_tokens"]
        if arm.name == wrong:
            ids[-1] += 1
        facts = {"first_tokens": 4, "decode_ms": 10.0, "accepted": 6, "cycles": 3}
        return {"token_ids": ids, "prefill_ms": 5.0, **facts}

    return answer


@pytest.mark.parametrize("wrong", ["hydra27", ""])
def test_arms_whose_texts_differ_are_not_timed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "answer", _answers(wrong))
    rig = Measure(_Engine(), [1] * 400, 2)
    if not wrong:
        rig.gate(list(ARMS)[:6])
        return
    with pytest.raises(InvalidField, match="texts differ"):
        rig.gate(["plain", wrong])


def test_a_rate_leaves_the_first_cycle_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "answer", _answers(""))
    rig = Measure(_Engine(), [1] * 400, 2)
    assert list(rig.prompts([100])) == [Row("-", "pp100", 20_000.0, 0.0)]
    assert list(rig.decodes("plain", [7], 34)) == [Row("plain", "tg34 @ 7", 3_000.0, 0.0, 2.0)]


def test_a_row_is_compared_with_the_same_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "earlier.json"
    file.write_text(
        json.dumps({"rows": [{"arm": "plain", "test": "tg32 @ 0", "tokens_per_second": 50.0}]})
    )
    source = {"processor": "p", "threads": 2, "versions": {}, "date": "d"}
    rows = [Row("plain", "tg32 @ 0", 60.0, 1.0, 0.0), Row("plain", "tg32 @ 9", 60.0, 1.0, 0.0)]
    show(rows, source, read_rates(file))
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[1][-2:] == ["50.0", "1.20"]
    assert printed[2][-2:] == ["-", "-"]


@pytest.mark.parametrize("content", ["", "{}", '{"rows": 3}', '{"rows": [{"arm": "plain"}]}'])
def test_a_file_that_no_bench_wrote_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "earlier.json"
    file.write_text(content)
    with pytest.raises(InvalidField, match="--json"):
        read_rates(file)
