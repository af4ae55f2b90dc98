"""A product that two threads share has the bits of one thread, also when the second is late."""

from collections.abc import Iterator
from threading import Lock, Thread
from typing import Any

import numpy as np
import pytest
import torch
from numba import njit

from services.kernels import linear
from services.kernels.atomic.cpu import load_word, store_word, swap_word
from services.kernels.crew import cpu as crew
from services.kernels.norm.cases import normal
from services.kernels.threads import num_threads, use_threads

load: Any = load_word
store: Any = store_word
swap: Any = swap_word


@pytest.fixture(autouse=True)
def keep_threads() -> Iterator[None]:
    before = num_threads()
    yield
    use_threads(before)


def _product(threads: int, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    use_threads(threads)
    out = torch.full((x.shape[0], weight.shape[0]), torch.nan)
    linear.linear(x, weight, out)
    return out


@pytest.mark.parametrize("narrow", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [3, 6, 28, 128, 256])
def test_two_threads_give_the_bits_of_one(narrow: bool, rows: int, seed: int) -> None:
    x, weight = normal(rows, 256, seed=seed), normal(5000, 256, seed=seed + 1)
    linear.prepare(weight, narrow)
    alone = _product(1, x, weight)
    for _ in range(20):
        assert torch.equal(_product(2, x, weight), alone)


@njit(nogil=True)
def _claim_one(control: np.ndarray, marks: int) -> None:
    """Claim one panel of the next job as a second thread does; compute nothing."""
    at = np.int64(control.ctypes.data)
    while True:
        ticket = load(at)
        if ticket & crew._CLOSED < 30 and swap(at, ticket, ticket + 1):
            if marks:
                store(at + (crew._DONE + (ticket & crew._CLOSED)) * 8, ticket >> 20)
            return


def _empty_crew() -> crew._Crew:
    made = crew._Crew.__new__(crew._Crew)
    made.lock, made.kept = Lock(), None
    made.control = np.zeros(crew._DONE + crew._MAX_PANELS, np.int64)
    made.control[crew._TICKET] = crew._CLOSED
    made.staged = np.full((crew._MAX_STAGED // 64, 64), np.nan, np.float32)
    return made


@pytest.mark.parametrize("marks", [0, 1], ids=["late", "marked"])
def test_a_late_panel_is_computed_again(
    monkeypatch: pytest.MonkeyPatch, marks: int, seed: int
) -> None:
    """A panel that was claimed and not marked is done again; a marked one is believed."""
    x, weight = normal(256, 256, seed=seed), normal(4096, 256, seed=seed + 1)
    alone = _product(1, x, weight)
    made = _empty_crew()
    _claim_one.compile("void(int64[::1], int64)")
    monkeypatch.setattr(crew, "_crews", [made])
    thief = Thread(target=_claim_one, args=(made.control, marks))
    thief.start()
    shared = alone
    while thief.is_alive():
        shared = _product(2, x, weight)
        if bool(shared.isnan().any()):
            break
    thief.join()
    assert torch.equal(shared, alone) != bool(marks)
    assert torch.equal(_product(2, x, weight), alone)


def test_a_busy_helper_is_left_alone(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    x, weight = normal(28, 256, seed=seed), normal(2048, 256, seed=seed + 1)
    alone = _product(1, x, weight)
    assert torch.equal(_product(2, x, weight), alone)
    helper = crew._crews[0]
    monkeypatch.setattr(helper, "control", helper.control.copy())
    helper.control[crew._BUSY] = 1
    before = int(helper.control[crew._TICKET])
    assert torch.equal(_product(2, x, weight), alone)
    assert int(helper.control[crew._TICKET]) == before
