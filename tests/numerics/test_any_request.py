"""N3, N4, N10 together: any request, drafted in any way beside any others, is as it was plainly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.committer.stage import CommitterStage
from services.gateway.engine import Engine
from services.runtime.local import LocalGroup
from tests.fuzz.any_request import Difference, Hunt
from tests.service.front import make_engine
from tests.service.small import small_engine


@pytest.fixture
def engine(byte_model: Path) -> Iterator[Engine]:
    opened = small_engine(byte_model, max_sequences=5, context_length=384)
    yield opened
    opened.close()


def test_no_request_notices_drafts_or_neighbours(engine: Engine, seed: int) -> None:
    counts = Hunt(engine, random.Random(seed)).run(groups=8)
    print(dict(counts))
    assert counts["compared"] >= 16 and counts["accepted"] >= 40


@pytest.mark.parametrize("step", ["recurrent_replay", "conv_gather", "kv_scatter"])
def test_a_step_that_is_left_out_is_noticed(engine: Engine, seed: int, step: str) -> None:
    group = engine.group
    assert isinstance(group, LocalGroup)
    committer = group.stages[2]
    assert isinstance(committer, CommitterStage)
    hunt = Hunt(engine, random.Random(seed))
    known = [one for one in map(hunt._plain, range(4)) if one]
    committer.steps[step] = lambda job: None
    with pytest.raises(Difference):
        for one in known:
            hunt._compare([one])


@pytest.mark.slow
@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_request_to_the_embedded_model_notices_them(
    seed: int, index: int, threads: int, dtype: str
) -> None:
    opened = make_engine(
        max_sequences=9, context_length=1280, num_pages=90, threads=threads, dtype=dtype
    )
    try:
        counts = Hunt(opened, random.Random(seed)).run(groups=10)
    finally:
        opened.close()
    print(dict(counts))
    assert counts["compared"] >= 20
