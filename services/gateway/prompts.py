"""Prompts of public requests as token ids: text, ids or a chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.contract import limits, pb
from services.contract.checks import at_most, text
from services.contract.errors import InvalidField, UnsupportedError
from services.gateway.caller_json import json_or_text, read_json
from services.gateway.chat import ChatTemplate
from services.gateway.text import TextCodec

gen = pb.generation_pb2
_LONG_CHARS = 1 << 16
_ROLES = {
    gen.ROLE_SYSTEM: "system",
    gen.ROLE_DEVELOPER: "developer",
    gen.ROLE_USER: "user",
    gen.ROLE_ASSISTANT: "assistant",
    gen.ROLE_TOOL: "tool",
}


@dataclass(frozen=True, slots=True)
class PromptReader:
    """Turn the prompt of a request into ids with one checkpoint's tokenizer and template."""

    codec: TextCodec
    template: ChatTemplate
    vocab_size: int
    context_length: int

    def read(self, request: Any) -> tuple[list[int], str]:
        """Return a prompt's ids and its text."""
        kind = request.WhichOneof("prompt")
        if kind == "text":
            prompt = text(request.text.text, limits.MAX_PROMPT_BYTES, "text.text")
            self._check_size(prompt)
            parse = set_or(request.text, "parse_special", True)
            encode = self.codec.encode if parse else self.codec.encode_plain
            return _some(encode(prompt), "text.text"), prompt
        if kind == "token_ids":
            ids = listed_ids(
                request.token_ids.ids, self.vocab_size, limits.MAX_CONTEXT, "token_ids.ids"
            )
            return _some(ids, "token_ids.ids"), self.codec.decode(ids, skip_special=False)
        if kind == "chat":
            rendered, ids = self.render(request.chat)
            return ids, rendered
        raise InvalidField("NO_PROMPT", "not set; send text, token_ids or chat", "prompt")

    def render(self, chat: gen.ChatPrompt) -> tuple[str, list[int]]:
        """Return a chat prompt's text and ids."""
        at_most(chat.messages, limits.MAX_MESSAGES, "chat.messages")
        at_most(chat.tools, limits.MAX_TOOLS, "chat.tools")
        if chat.continue_final_message:
            message = "not supported: an answer cannot continue a message; leave it out"
            raise UnsupportedError("NOT_BUILT", message, "chat.continue_final_message")
        uses_tools = chat.tool_choice != gen.TOOL_CHOICE_NONE
        return self.template.render(
            [_message(m, i) for i, m in enumerate(chat.messages)],
            [_tool(t, i) for i, t in enumerate(chat.tools)] if uses_tools else [],
            {k: json_or_text(v) for k, v in chat.chat_template_kwargs.items()},
            add_generation_prompt=set_or(chat, "add_generation_prompt", True),
        )

    def _check_size(self, prompt: str) -> None:
        """Refuse a text that cannot fit before seconds are spent on its tokens."""
        if len(prompt) <= _LONG_CHARS:
            return
        size, context = len(prompt.encode()), self.context_length
        if size > context * self.codec.longest_token_bytes:
            message = f"{size} bytes are more than {context} tokens, the context; shorten the text"
            raise InvalidField("CONTEXT_LENGTH", message, "text.text")


def listed_ids(values: Any, vocab_size: int, limit: int, field: str) -> list[int]:
    """Return listed ids.

    Raises  InvalidField for too many, or naming one outside the vocabulary.
    """
    at_most(values, limit, field)
    for index, value in enumerate(values):
        if not 0 <= value < vocab_size:
            message = f"{value} is outside 0..{vocab_size - 1}"
            raise InvalidField("TOKEN_OUT_OF_VOCABULARY", message, f"{field}[{index}]")
    return list(values)


def _some(ids: list[int], field: str) -> list[int]:
    if not ids:
        raise InvalidField("EMPTY_PROMPT", "the prompt has no token; send one", field)
    return ids


def set_or(message: Any, name: str, default: Any) -> Any:
    """Return a field's value, or the default where it is not set."""
    return getattr(message, name) if message.HasField(name) else default


def _message(message: gen.ChatMessage, index: int) -> dict[str, Any]:
    if message.role not in _ROLES:
        raise InvalidField("NO_ROLE", "not set; name a role", f"chat.messages[{index}].role")
    fields: dict[str, Any] = {"role": _ROLES[message.role], "content": message.content}
    for name in ("name", "tool_call_id"):
        if message.HasField(name):
            fields[name] = getattr(message, name)
    if message.HasField("reasoning"):
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [_call(call) for call in message.tool_calls]
    return fields


def _call(call: gen.ToolCall) -> Mapping[str, Any]:
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: gen.Tool, index: int) -> dict[str, Any]:
    parameters = read_json(tool.parameters_json or "{}", f"chat.tools[{index}].parameters_json")
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}
