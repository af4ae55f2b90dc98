"""A replay's page: every picture is drawn, and what went wrong is on it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page import write_page
from benchmarks.replay import report
from benchmarks.replay.outcome import make_report
from benchmarks.replay.pictures import draw_all
from benchmarks.replay.run import SAMPLING, Outcome
from benchmarks.replay.table import show

_ARMS = ("plain", "chain-5", "hydra27", "hydra27-3-passes", "vllm-plain")


def _record(arm: str, request: int, text: str) -> dict[str, Any]:
    record = {"arm": arm, "corpus": "c", "request": f"r{request}", "repeat": 0, "tokens": 41}
    record |= {"tokens_sha256": text, "prompt_tokens": 9, "decode_ms": 80.0, "prefill_ms": 9.0}
    if arm.startswith("vllm"):
        return record
    drafts = {} if arm == "plain" else {"mtp_spine": 30}
    return record | {
        "cycles": 10,
        "accepted": sum(drafts.values()),
        "accepted_by_depth": [10, 8, 7, 5] if drafts else [],
        "acceptance_histogram": [0, 2, 1, 2, 5] if drafts else [10],
        "accepted_by_source": drafts,
        "drafted_by_source": drafts,
        "spans_ms": {"drafter": 20.0, "verifier": 40.0, "committer": 10.0, "round": 75.0},
    }


def _run(text: str = "same", seed: int | None = 7, is_complete: bool = True) -> dict[str, Any]:
    records = [_record(arm, request, "same") for arm in _ARMS for request in range(3)]
    records[-4]["tokens_sha256"] = text
    outcome = Outcome(records, {"vllm-mtp-5": "ended with status -6: free()"}, is_complete)
    plan = {"max_tokens": 64, "repeats": 1, "seed": seed}
    source = {"date": "2026-01-02T03:04:05", "plan": plan, "sampling": SAMPLING, "threads": 2}
    source |= {"corpora_note": "made up", "processor": "p", "python": "3", "versions": {"a": "1"}}
    return make_report(outcome, source)


def test_a_page_names_its_pictures_variants_and_failures(
    tmp_path: Path,
) -> None:
    source = tmp_path / "replay_x.json"
    source.write_text(json.dumps(_run()))
    write_page(source, tmp_path, draw_all, report.text)
    page = (tmp_path / "replay_x_2026-01-02.md").read_text()
    pictures = re.findall(r"\((replay_x_2026-01-02_\w+\.svg)\)", page)
    assert len(pictures) == 7
    assert all((tmp_path / name).stat().st_size > 1000 for name in pictures)
    assert "vllm-mtp-5 ended with status -6: free()" in page
    assert "- hydra27-3-passes: three MTP passes" in page
    assert "texts differ between exact arms: 0" in page
    assert "| vllm-plain \\* |" in page


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"text": "other"}, "texts differ between exact arms: 1"),
        ({"text": "other", "seed": None}, "were not compared"),
        ({"is_complete": False}, "did not end"),
    ],
)
def test_what_is_wrong_is_printed(
    changed: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(_run(**changed))
    assert said in " ".join(capsys.readouterr().out.split())
