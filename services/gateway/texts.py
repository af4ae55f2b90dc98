"""The calls that turn text into ids and back, without an engine's work."""

from __future__ import annotations

from services.contract import limits, pb
from services.contract.checks import text, token_ids
from services.contract.errors import InvalidField
from services.contract.wire import refuse_unknown
from services.gateway.text import TextCodec
from services.gateway.translate import Translator

gen = pb.generation_pb2


def tokenize(translator: Translator, request: gen.TokenizeRequest) -> gen.TokenizeResponse:
    """Return a text's ids; offsets are in characters."""
    refuse_unknown(request)
    translator.check_model(request.model)
    content = text(request.text, limits.MAX_PROMPT_BYTES, "text")
    parse = request.parse_special or not request.HasField("parse_special")
    codec = translator.prompts.codec
    if not request.return_offsets:
        ids = codec.encode(content) if parse else codec.encode_plain(content)
        return gen.TokenizeResponse(token_ids=ids, count=len(ids))
    if not parse:
        message = "offsets are of parsed text; set parse_special or leave offsets out"
        raise InvalidField("OFFSETS", message, "return_offsets")
    return _with_offsets(codec, content)


def detokenize(translator: Translator, request: gen.DetokenizeRequest) -> gen.DetokenizeResponse:
    """Return the text of ids."""
    refuse_unknown(request)
    translator.check_model(request.model)
    limit = limits.MAX_TOKENIZE_IDS
    ids = token_ids(request.token_ids, translator.vocab_size, limit, "token_ids")
    return gen.DetokenizeResponse(
        text=translator.prompts.codec.decode(ids, request.skip_special_tokens)
    )


def render_chat(translator: Translator, request: gen.RenderChatRequest) -> gen.RenderChatResponse:
    """Return a chat prompt's text and ids without generating."""
    refuse_unknown(request)
    translator.check_model(request.model)
    rendered, ids = translator.prompts.render(request.chat)
    return gen.RenderChatResponse(text=rendered, token_ids=ids, count=len(ids))


def _with_offsets(codec: TextCodec, content: str) -> gen.TokenizeResponse:
    encoding = codec.tokenizer.encode_batch([content], add_special_tokens=False)[0]
    offsets = [gen.TokenOffset(start=a, end=b) for a, b in encoding.offsets]
    return gen.TokenizeResponse(token_ids=encoding.ids, count=len(encoding.ids), offsets=offsets)
