"""What any engine refuses before it queues a sequence."""

from __future__ import annotations

from services.contract.errors import InvalidField
from services.gateway.requests import GenerationRequest


def check_room(request: GenerationRequest, vocab_size: int, context_length: int) -> None:
    """Refuse a prompt that the engine cannot hold.

    Raises  InvalidField naming the field.
    """
    count = len(request.prompt_ids)
    if count == 0:
        raise InvalidField("EMPTY_PROMPT", "the prompt has no token; send one", "prompt")
    if count + max(1, request.budget.max_tokens) > context_length:
        text = f"{count} prompt tokens + {request.budget.max_tokens} new > context {context_length}"
        raise InvalidField("CONTEXT_LENGTH", text + "; shorten the prompt", "prompt")
    if not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < vocab_size:
        text = f"an id is outside 0..{vocab_size - 1}"
        raise InvalidField("TOKEN_OUT_OF_VOCABULARY", text, "prompt")
    request.sampling.check_vocabulary(vocab_size)
    _check_open_ids(request)


def _check_open_ids(request: GenerationRequest) -> None:
    """Refuse a request whose every allowed id is an end token that min_tokens bans."""
    allowed, budget = set(request.sampling.allowed_token_ids), request.budget
    if allowed and budget.min_tokens and allowed <= {*budget.eos_ids, *budget.stop_ids}:
        text = "only end tokens are allowed, and min_tokens bans them; allow another id"
        raise InvalidField("NOTHING_ALLOWED", text, "allowed_token_ids")
