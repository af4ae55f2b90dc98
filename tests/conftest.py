"""One thread, one printed seed: every random test derives its numbers from it."""

import os
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():
    # The interpreter must be chosen before the first import of triton, by whatever test that is.
    os.environ.setdefault("TRITON_INTERPRET", "1")

from tests.oracle.models import random_tensors, stored_names, tiny_config, write_folder

if TYPE_CHECKING:
    from tests.service.front import RunningServer

BASE_SEED = int(os.environ.get("LUMOTREE_TEST_SEED", "20260930"))

settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {BASE_SEED} (set LUMOTREE_TEST_SEED to change it); torch threads: 1"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Seed of this test: the base seed and the test's name; shown when the test fails."""
    value = (BASE_SEED + zlib.crc32(request.node.nodeid.encode())) & 0x7FFFFFFF
    print(f"seed: {value} (base {BASE_SEED})")
    return value


@pytest.fixture
def rng(seed: int) -> Iterator[np.random.Generator]:
    """Numpy generator of this test; Python's and torch's generators are seeded alike."""
    random.seed(seed)
    torch.manual_seed(seed)
    yield np.random.default_rng(seed)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random model: 4 layers, hidden 64, vocabulary 160."""
    config = tiny_config()
    folder = tmp_path_factory.mktemp("tiny")
    return write_folder(folder, config, stored_names(random_tensors(config, seed=11)))


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One Ray of this test run, in test mode, with room for two stage groups."""
    from services.runtime.ray_session import RaySession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUMOTREE_TEST_MODE", "1")
        patch.delenv("RAY_ADDRESS", raising=False)
        session = RaySession("cpu", groups=2)
    yield
    session.close()


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random model whose ids 0..255 are bytes of text."""
    from tests.service.small import write_byte_model

    return write_byte_model(tmp_path_factory.mktemp("models") / "byte-model")


@pytest.fixture(scope="session")
def small_server(byte_model: Path) -> Iterator["RunningServer"]:
    """A server of the byte model, two sequences at once, that test drafters may use."""
    from tests.service.front import running
    from tests.service.small import small_engine

    with running(small_engine(byte_model), test_drafters=True) as server:
        yield server
