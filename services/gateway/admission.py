"""What any engine refuses before it queues a sequence."""

from __future__ import annotations

from services.contract.errors import InvalidField
from services.contract.limits import PAGE
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
    _check_open_ids(request, vocab_size)


def check_pages(needed: int, total: int) -> None:
    """Refuse a sequence that would wait for ever: the server has fewer pages than it may need.

    Raises  InvalidField with both numbers.
    """
    if needed > total:
        text = f"prompt and max_tokens need {needed} pages of {PAGE} positions; the server has "
        raise InvalidField("TOO_FEW_PAGES", f"{text}{total}; ask for fewer tokens", "prompt")


def _check_open_ids(request: GenerationRequest, vocab_size: int) -> None:
    """Refuse a request that bans every id it allows, its end tokens while min_tokens holds."""
    sampling, budget = request.sampling, request.budget
    banned = set(sampling.banned_token_ids)
    if budget.min_tokens:
        banned |= {*budget.eos_ids, *budget.stop_ids}
    allowed = sampling.allowed_token_ids
    if len(banned) >= vocab_size or (allowed and banned.issuperset(allowed)):
        text = "every id is banned, end tokens by min_tokens; leave another one"
        field = "allowed_token_ids" if allowed else "banned_token_ids"
        raise InvalidField("NOTHING_ALLOWED", text, field)
