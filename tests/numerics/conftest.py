"""One tiny random checkpoint for the whole room."""

from pathlib import Path

import pytest

from tests.oracle.models import random_tensors, stored_names, tiny_config, write_folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a random model: 4 layers, hidden 64, vocabulary 160."""
    config = tiny_config()
    folder = tmp_path_factory.mktemp("tiny")
    return write_folder(folder, config, stored_names(random_tensors(config, seed=11)))
