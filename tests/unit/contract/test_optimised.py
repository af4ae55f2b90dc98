"""S9: every check of the contract holds under `python -O`, which strips assert."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_contract_and_fuzz_tests_pass_without_asserts() -> None:
    command = [sys.executable, "-O", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    selection = ["-m", "not slow", "-k", "not test_optimised", "tests/unit/contract", "tests/fuzz"]
    done = subprocess.run([*command, *selection], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_optimised_mode_strips_asserts_as_this_test_needs() -> None:
    code = "assert False\nprint('stripped')"
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert done.stdout == "stripped\n"
