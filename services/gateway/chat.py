"""Render chat messages with the checkpoint's own template, sandboxed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from services.contract.errors import InvalidField, UnsupportedError
from services.gateway.caller_json import json_or_text
from services.gateway.text import TextCodec, mark_literals


def _tojson(value: Any, indent: int | None = None) -> str:
    # The stock filter sorts keys and escapes HTML, which changes the prompt.
    return json.dumps(value, ensure_ascii=False, sort_keys=False, indent=indent)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = time.strftime
    return environment


def _template_source(folder: Path) -> str | None:
    """Return chat_template.jinja, else the template in tokenizer_config.json."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    config = folder / "tokenizer_config.json"
    raw = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    template = raw.get("chat_template")
    return template if isinstance(template, str) else None


@dataclass(frozen=True)
class ChatTemplate:
    """A checkpoint's chat template with its tokenizer."""

    codec: TextCodec
    source: str | None

    @classmethod
    def load(cls, folder: Path, codec: TextCodec) -> ChatTemplate:
        """Read the template of a checkpoint folder; a folder may have none."""
        return cls(codec=codec, source=_template_source(folder))

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        parse_special: bool = False,
    ) -> tuple[str, list[int]]:
        """Return the rendered text and its ids.

        Control-token text inside messages and tools stays plain text unless
        `parse_special`; `<think>` and tool tags of assistant turns keep their meaning.
        Raises  UnsupportedError without a template; InvalidField if it refuses the input.
        """
        if self.source is None:
            raise UnsupportedError(
                "NO_CHAT_TEMPLATE", "the checkpoint has no chat template; send text or token_ids"
            )
        if not messages:
            raise InvalidField("EMPTY_CHAT", "messages is empty; send at least one", "messages")
        messages = [_normalised(message) for message in messages]
        marker = "" if parse_special else self._marker([*messages, *(tools or [])])
        if marker:
            messages = [self._guarded(message, marker) for message in messages]
            tools = self._mark(tools, marker, all_tags=True)
        rendered = self._run(messages, tools, dict(kwargs or {}), add_generation_prompt)
        ids = self.codec.encode_marked(rendered, marker)
        return rendered.replace(marker, "") if marker else rendered, ids

    def _run(
        self, messages: Any, tools: Any, kwargs: dict[str, Any], add_generation_prompt: bool
    ) -> str:
        reserved = {"messages", "tools", "add_generation_prompt"} & kwargs.keys()
        if reserved:
            name = sorted(reserved)[0]
            raise InvalidField(
                "RESERVED_KWARG",
                f"chat_template_kwargs holds {name}; set the field of that name",
                "chat_template_kwargs",
            )
        try:
            template = _environment().from_string(self.source or "")
            return template.render(
                messages=messages,
                tools=tools or None,
                add_generation_prompt=add_generation_prompt,
                **kwargs,
            )
        except jinja2.TemplateError as error:
            text = f"the chat template refuses the messages: {error}"
            raise InvalidField("CHAT_TEMPLATE", text, "messages") from error
        except Exception as error:  # of the template's own code, and its text may hold content
            text = f"the chat template cannot render these messages: {type(error).__name__}"
            raise InvalidField("CHAT_TEMPLATE", text, "messages") from None

    def _marker(self, values: list[Any]) -> str:
        return mark_literals(json.dumps(values, ensure_ascii=False), ())[1]

    def _guarded(self, message: dict[str, Any], marker: str) -> dict[str, Any]:
        marked: dict[str, Any] = self._mark(message, marker, message.get("role") != "assistant")
        return {**marked, "role": message.get("role")}

    def _mark(self, value: Any, marker: str, all_tags: bool) -> Any:
        if isinstance(value, str):
            ids = self.codec.added if all_tags else self.codec.special
            return mark_literals(value, (self.codec.added[i] for i in ids), marker)[0]
        if isinstance(value, dict):
            return {
                self._mark(key, marker, all_tags): self._mark(item, marker, all_tags)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._mark(item, marker, all_tags) for item in value]
        return value


def _normalised(message: dict[str, Any]) -> dict[str, Any]:
    """Join text parts and parse tool-call arguments, which clients send as strings."""
    message = {key: value for key, value in message.items() if value is not None}
    content = message.get("content", "")
    if isinstance(content, list):
        message["content"] = "".join(part.get("text", "") for part in content)
    else:
        message["content"] = content
    if message.get("role") == "developer":
        message["role"] = "system"
    calls = message.get("tool_calls")
    if calls:
        message["tool_calls"] = [_parsed_call(call) for call in calls]
    return message


def _parsed_call(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function", call))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        function["arguments"] = json_or_text(arguments) if arguments.strip() else {}
    return {**call, "function": function}
