"""S9: every check of the contract holds under `python -O`, which strips assert."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("tests/unit/contract", "tests/fuzz", "tests/security")


def test_contract_fuzz_and_security_tests_pass_without_asserts() -> None:
    command = [sys.executable, "-O", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    folders = [name for name in FOLDERS if (ROOT / name).is_dir()]
    chosen = "not test_optimised and not test_ray and not tenant"
    selection = ["-m", "not slow", "-k", chosen, *folders]
    done = subprocess.run([*command, *selection], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_optimised_mode_strips_asserts_as_this_test_needs() -> None:
    code = "assert False\nprint('stripped')"
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert done.stdout == "stripped\n"
