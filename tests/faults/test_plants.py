"""`lumotree prove --plant NAME` exits 1 and names each planted fault; a sound part exits 0."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.proof import sampler_faults
from benchmarks.proof.check import FAMILIES, Check, left_out
from benchmarks.proof.command import prove
from benchmarks.proof.plants import plant_names
from benchmarks.proof.rules import read_rules
from benchmarks.proof.sampler_rig import draw_rows
from services.contract.errors import InvalidField
from tests.faults.planted import FAULTS, Fault

NAMES = plant_names()
app = typer.Typer()
app.command()(prove)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, words)
    if isinstance(result.exception, InvalidField):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_planted_fault_is_found_and_named(tiny: Path, name: str) -> None:
    code, text = run("--plant", name, "--model", str(tiny), "--json")
    report = json.loads(text)
    assert (code, report["plant"], report["is_seen"]) == (1, name, True)
    assert report["seen_by"] and report["rules_sha256"] == read_rules()[1]


def test_text_names_the_fault_and_what_found_it(tiny: Path) -> None:
    code, text = run("--plant", "replay", "--model", str(tiny))
    assert code == 1
    assert text.startswith("replay: found by recurrent")


def test_a_fault_that_breaks_nothing_exits_0(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inverse control: the same runs with nothing planted are sound."""
    harmless = Fault("replay", lambda ring: None)
    monkeypatch.setattr("tests.faults.planted.FAULTS", (harmless,))
    assert run("--plant", "replay", "--model", str(tiny)) == (0, "replay: not found\n")
    monkeypatch.setitem(sampler_faults.SAMPLER_FAULTS, "fixed_draw", draw_rows)
    assert run("--plant", "fixed_draw", "--model", str(tiny))[0] == 0


def test_all_faults_of_the_tables_can_be_planted() -> None:
    assert set(NAMES) >= {fault.name for fault in FAULTS} | set(sampler_faults.SAMPLER_FAULTS)
    assert len(NAMES) >= 16


@pytest.mark.parametrize(
    ("option", "field"), [("--plant", "plant"), ("--only", "only"), ("--device", "device")]
)
def test_an_unknown_name_is_refused(tiny: Path, option: str, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        run(option, "nonsense", "--model", str(tiny))
    assert refused.value.field == field


def test_a_check_holds_only_if_all_cases_pass_and_its_control_fires() -> None:
    assert Check("faults", "x", 2, 2, True).holds
    assert not Check("faults", "x", 2, 1, True).holds
    assert not Check("faults", "x", 2, 2, False).holds
    assert not Check("faults", "x", 0, 0, True).holds
    assert left_out("faults", "x", "not built").holds
    assert len(FAMILIES) == 8
