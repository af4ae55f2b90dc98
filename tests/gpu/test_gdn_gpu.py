"""GDN kernels on the device: one step bit for bit in every schedule, float64, poison, processes."""

import hashlib
import subprocess
import sys

import pytest
import torch

from benchmarks.kernels.gdn_data import cells_outside, make_problem, sequential, set_path
from benchmarks.kernels.gdn_gate import bits, chain, check, replay, scan
from services.kernels.gdn.cases import GdnShape

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda")
SHAPE_27B = GdnShape(slots=1, layers=3, key_heads=16, value_heads=48, dk=128, dv=128)
SHAPE_TINY = GdnShape(slots=1, layers=3, key_heads=2, value_heads=6, dk=64, dv=64)


def digest(shape: GdnShape = SHAPE_27B) -> str:
    """Return a hash over the outputs of the scan and the states of a replay."""
    problem = make_problem("hydra27", DEVICE, shape)
    parts = scan(problem, "one_pass"), scan(problem, "triangular"), replay(problem, 27)
    return hashlib.sha256(b"".join(bits(x).cpu().numpy().tobytes() for x in parts)).hexdigest()


@pytest.mark.parametrize("shape", [SHAPE_27B, SHAPE_TINY], ids=["27B", "tiny"])
@pytest.mark.parametrize("name", ["hydra27", "tree16", "chain12"])
def test_schedules_chain_and_replay_are_bitwise_equal(name: str, shape: GdnShape) -> None:
    problem = make_problem(name, DEVICE, shape)
    last = problem.tree.num_nodes - 1
    exact, native = (sequential(problem, kind, (last,)) for kind in (torch.float64, torch.float32))
    check(problem, exact, native)


def test_state_error_stays_near_that_of_torch() -> None:
    problem = make_problem("hydra27", DEVICE, SHAPE_27B)
    exact, native = (sequential(problem, kind, (27,)) for kind in (torch.float64, torch.float32))
    states = replay(problem, 27), native.states[27]
    error, base = ((x.double() - exact.states[27]).square().mean().sqrt() for x in states)
    assert error <= 1.1 * base


def test_a_tf32_state_falls_outside_the_paired_rule() -> None:
    problem = make_problem("hydra27", DEVICE, SHAPE_27B)
    exact, native = (sequential(problem, kind, (27,)) for kind in (torch.float64, torch.float32))
    rough = (bits(native.states[27]) & ~0x1FFF).view(torch.float32)
    outside, cells = cells_outside(rough, native.states[27], exact.states[27], 2)
    assert outside == cells


def test_poisoned_strangers_change_no_bit_and_a_poisoned_ancestor_does() -> None:
    problem = make_problem("hydra27", DEVICE, SHAPE_27B)
    clean = scan(problem, "one_pass")
    state = replay(problem, 21)
    path = list(problem.tree.path_to(21))
    strangers = [node for node in range(32) if node not in path]
    problem.case.mixed_ring[:, :, strangers] = torch.nan
    problem.case.ab_ring[:, :, strangers] = torch.nan
    assert torch.equal(bits(scan(problem, "one_pass")[:, path]), bits(clean[:, path]))
    assert torch.equal(bits(replay(problem, 21)), bits(state))
    problem.case.mixed_ring[:, :, path[1]] = torch.nan
    assert scan(problem, "one_pass")[:, 21].isnan().all()


def test_runs_repeat_their_bits() -> None:
    problem = make_problem("hydra27", DEVICE, SHAPE_27B)
    first = scan(problem, "one_pass")
    assert all(torch.equal(bits(scan(problem, "one_pass")), bits(first)) for _ in range(20))
    outputs, state = chain(problem, [0, 1, 4])
    set_path(problem, 4)
    assert torch.equal(bits(outputs), bits(first[:, [0, 1, 4]]))
    assert torch.equal(bits(state), bits(replay(problem, 4)))


def test_two_processes_have_equal_digests() -> None:
    command = [sys.executable, "-c", "from tests.gpu import test_gdn_gpu as t; print(t.digest())"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == digest()
