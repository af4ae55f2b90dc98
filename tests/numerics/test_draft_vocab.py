"""Fewer ids for the MTP head to draft change the drafts and no text."""

from __future__ import annotations

import pytest

from services.contract.config import EngineConfig
from services.contract.errors import InvalidField
from services.contract.sampling import Budget, Drafting, SamplingParams
from services.gateway.requests import GenerationRequest
from tests.service.front import make_engine


def _text_and_drafts(draft_vocab: int) -> tuple[tuple[int, ...], int]:
    engine = make_engine(draft_vocab=draft_vocab, max_sequences=1)
    request = GenerationRequest(
        request_id="one",
        prompt_ids=tuple(engine.codec.encode("def read(path):\n")),
        sampling=SamplingParams(temperature=0.6, top_k=20, seed=3, presence_penalty=1.0),
        budget=Budget(60, context_length=1024),
        drafting=Drafting("hydra27", suffix=False),
        sink=lambda event: None,
    )
    finished = engine.generate(request).finished
    engine.close()
    return finished.token_ids, finished.speculation.num_accepted_draft_tokens


def test_drafting_from_fewer_ids_changes_speed_only() -> None:
    whole, accepted = _text_and_drafts(0)
    fewer, accepted_fewer = _text_and_drafts(400)
    assert fewer == whole
    assert accepted_fewer < accepted


def test_negative_draft_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidField, match="draft_vocab"):
        EngineConfig(model="x", draft_vocab=-1)
