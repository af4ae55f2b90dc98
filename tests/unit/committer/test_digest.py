"""The digest sees every bit of the target state and nothing else."""

from pathlib import Path

import pytest
import torch

from services.committer.digest import state_digest, surface_digests
from services.contract.limits import PAGE
from services.kernels.state_words import ACTIVE_SET, CYCLE, LENGTH
from tests.ring import Ring


@pytest.fixture
def ring(tiny: Path) -> Ring:
    made = Ring(tiny, slots=2, context=256)
    state = made.arenas.verifier
    generator = torch.Generator().manual_seed(3)
    for name in ("recurrent", "conv", "kv"):
        state[name].copy_(torch.randn(state[name].shape, generator=generator))
    state["page_table"][0] = torch.tensor([5, 2, 7, 1])
    state["words"][0, LENGTH] = PAGE + 9
    return made


CHANGES = {
    "recurrent": ("recurrent", (0, 0, 2, 1, 3, 5)),
    "conv": ("conv", (0, 0, 1, 2, 7)),
    "kv of a full page": ("kv", (0, 5, 1, 1, 63, 2)),
    "kv of the last position": ("kv", (0, 2, 0, 0, 8, 0)),
}
BLIND = {
    "other set": ("recurrent", (0, 1, 2, 1, 3, 5)),
    "other slot": ("recurrent", (1, 0, 2, 1, 3, 5)),
    "other set's conv": ("conv", (0, 1, 1, 2, 7)),
    "kv behind the length": ("kv", (0, 2, 0, 0, 9, 0)),
    "free page": ("kv", (0, 7, 0, 0, 0, 0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_flipped_bit_changes_the_digest_of_its_surface(ring: Ring, name: str) -> None:
    state = ring.arenas.verifier
    before, parts = state_digest(state, 0), surface_digests(state, 0)
    buffer, index = CHANGES[name]
    state[buffer].view(torch.int32)[index] ^= 1
    after = surface_digests(state, 0)
    assert state_digest(state, 0) != before
    assert [key for key in parts if parts[key] != after[key]] == [buffer]


@pytest.mark.parametrize("name", BLIND)
def test_what_is_no_state_changes_nothing(ring: Ring, name: str) -> None:
    state = ring.arenas.verifier
    before = state_digest(state, 0)
    buffer, index = BLIND[name]
    state[buffer][index] = torch.nan
    assert state_digest(state, 0) == before


def test_places_and_counters_do_not_matter(ring: Ring) -> None:
    state = ring.arenas.verifier
    before = state_digest(state, 0)
    state["words"][0, CYCLE] = 77
    state["words"][0, ACTIVE_SET] = 1
    for name in ("recurrent", "conv"):
        state[name][0, 1] = state[name][0, 0]
        state[name][0, 0] = torch.nan
    state["kv"][:, 6] = state["kv"][:, 5]
    state["page_table"][0, 0] = 6
    assert state_digest(state, 0) == before
    state["words"][0, LENGTH] += 1
    assert state_digest(state, 0) != before
