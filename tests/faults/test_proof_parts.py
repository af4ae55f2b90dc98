"""The parts of the proof that only a device runs at full size, small on the CPU."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.cycle.shapes import QWEN_27B
from benchmarks.proof import runner, size27b
from benchmarks.proof.check import Check
from benchmarks.proof.native import foreign_chain, foreign_kernel
from benchmarks.proof.operands import Operands, Results
from benchmarks.proof.paired import is_more_often, paired
from benchmarks.proof.pictures import draw_all
from benchmarks.proof.rules import read_rules
from benchmarks.proof.sampler import made_case
from benchmarks.proof.sampler_rig import counter_words, draw_rows, draw_slabs
from benchmarks.proof.sampler_wide import wide_checks
from benchmarks.proof.world import World
from services.committer.publish import STEPS
from services.contract.sampling import SamplingParams

SMALL = {
    "vocab_size": 1000,
    "eos_token_id": 999,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "dtype": "float32",
}


def small_world(tiny: Path) -> World:
    rules = read_rules()[0]
    rules["size27b"] |= {"prefix_lengths": [150], "layers": 4, "cycles": 3}
    wide = {"vocab": 1500, "walks": 8000, "batch": 100, "steps": 1}
    rules["sampler"]["wide"] |= wide
    return World(rules, tiny)


@pytest.fixture(scope="module")
def operands() -> tuple[dict, Operands]:
    rules = read_rules()[0]["components"] | {"layers": 4}
    return rules, Operands(rules, 1, 1.0, "cpu")


def checks(operands: tuple[dict, Operands], found: Results) -> list[Check]:
    rules, made = operands
    return list(paired(rules, "x", made, found, made.sequential(torch.float64)))


def test_our_kernel_keeps_the_paired_rule(operands: tuple[dict, Operands]) -> None:
    found = checks(operands, operands[1].tree())
    assert [check.holds for check in found] == [True, True]


def test_a_less_exact_kernel_breaks_the_paired_rule(operands: tuple[dict, Operands]) -> None:
    """The inverse control: values a few roundings off, of no other kind than a kernel's."""
    tree = operands[1].tree()
    rough = Results(tree.outputs * (1 + 2**-20), tree.states * (1 + 2**-20))
    found = checks(operands, rough)
    assert [check.holds for check in found] == [False, False]


def test_the_foreign_chain_is_not_ours(operands: tuple[dict, Operands]) -> None:
    native = foreign_chain(operands[1], foreign_kernel("cpu")[1])
    assert not torch.equal(native.states, operands[1].tree().states)


def test_sign_test_counts_one_side_only() -> None:
    assert not is_more_often(5, 50, 0.001)
    assert not is_more_often(6, 5, 0.001)
    assert is_more_often(15, 1, 0.001)
    assert is_more_often(900, 700, 0.001)
    assert not is_more_often(810, 790, 0.001)


def test_long_prefixes_hold_and_a_lost_step_shows(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = small_world(tiny)
    weights = size27b.loaded({**QWEN_27B, **SMALL}, 1, "cpu")
    found = list(size27b.long_prefixes(world, weights))
    assert [(check.cases, check.holds) for check in found] == [(6, True), (6, True), (2, True)]
    monkeypatch.setitem(STEPS, "conv_gather", lambda job: None)
    broken = list(size27b.long_prefixes(world, weights))
    assert not broken[1].holds


def test_wide_audit_holds_and_sees_a_shift(tiny: Path) -> None:
    found = list(wide_checks(small_world(tiny)))
    assert [check.holds for check in found] == [True, True]


def test_slabs_draw_what_single_rows_draw() -> None:
    params = SamplingParams(temperature=0.6, top_p=0.95, top_k=20, presence_penalty=1.0, seed=1)
    case = made_case(3, params)
    words = counter_words(case, np.arange(256, dtype=np.uint64))
    alone = draw_rows(case, words, "cpu")
    assert np.array_equal(alone, draw_slabs(case, words, "cpu", 64))
    assert not np.array_equal(alone, draw_slabs(case, words[::-1].copy(), "cpu", 64))


def test_a_family_that_dies_is_a_failed_check(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUMOTREE_TEST_MODE", "1")
    shown: list[str] = []
    report = runner.run_families(["lifecycle"], tmp_path / "none", "cpu", shown.append, jobs=2)
    assert not report["holds"]
    assert report["checks"][0]["detail"]["exit_code"] != 0


def test_families_run_in_processes_and_make_a_page(tiny: Path, tmp_path: Path) -> None:
    report = runner.run_families(["size27b"], tiny, "cpu", lambda text: None, jobs=2)
    assert report["holds"] and all(check["not_run"] for check in report["checks"])
    assert "2 checks not run" in runner.markdown(report)
    check = Check("faults", "x", 2, 2, True, {"tokens_alone": ["1 cycles later"]})
    report["checks"].append(vars(check) | {"holds": check.holds})
    assert draw_all(report, tmp_path, "p") == ["p_checks.svg", "p_faults.svg"]
