"""Bytes to messages within limits, and refusal of what a message must not hold."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from services.contract.errors import InvalidField, TooLargeError, UnsupportedError

AnyMessage = TypeVar("AnyMessage", bound=Message)

_MAX_DEPTH: Final = 8
# Fields of GenerateRequest that are named in the contract and not built.
UNSUPPORTED: Final = {
    "constraint": "answers cannot be constrained",
    "priority": "the queue is first in, first out",
    "sampling.bad_words": "words cannot be banned; use banned_token_ids",
    "stop.max_reasoning_tokens": "reasoning is not told apart",
    "output.prompt_logprobs": "prompts have no log-probabilities",
}
# Fields of which only some values are built: path -> values that are refused.
UNSUPPORTED_VALUES: Final = {
    "sampling.tie_policy": ((2,), "top-k keeps boundary ties"),
    "output.parse_tools": ((True,), "tool calls stay in the text"),
    "output.parse_reasoning": ((True,), "reasoning stays in the text"),
    "chat.tool_choice": ((3,), "a tool call cannot be forced"),
}


def parse(kind: type[AnyMessage], data: bytes, limit_bytes: int) -> AnyMessage:
    """Return the message that `data` holds.

    Raises  TooLargeError above the limit; InvalidField if it is no such message.
    """
    if len(data) > limit_bytes:
        raise TooLargeError("MESSAGE_SIZE", f"{len(data)} bytes; limit {limit_bytes}; send less")
    message: AnyMessage = kind()
    try:
        message.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError):
        name = kind.DESCRIPTOR.full_name
        raise InvalidField("MALFORMED", f"these bytes are not a {name}") from None
    return message


def refuse_unknown(message: Message) -> None:
    """Refuse fields and enum numbers that this build does not know, at any depth."""
    for path, inner in _messages(message, "", 0):
        unknown = UnknownFieldSet(inner)
        if len(unknown):
            text = f"field number {unknown[0].field_number} is not known; leave it out"
            raise InvalidField("UNKNOWN_FIELD", text, path.rstrip("."))
        for field, value in inner.ListFields():
            if field.enum_type is not None:
                numbers = value if field.is_repeated else [value]
                _check_enum(field.enum_type, numbers, path + field.name)


def refuse_unsupported(request: Message) -> None:
    """Refuse a generate request with a field or value that is not built, by name."""
    refuse_values(request, UNSUPPORTED, UNSUPPORTED_VALUES)


def refuse_values(
    request: Message,
    fields: Mapping[str, str],
    values: Mapping[str, tuple[tuple[object, ...], str]],
) -> None:
    """Refuse set fields (path -> reason) and some values (path -> values, reason) by name."""
    for path, reason in fields.items():
        if _values_at(request, path):
            raise UnsupportedError("NOT_BUILT", f"not supported: {reason}; leave it out", path)
    for path, (refused, reason) in values.items():
        if any(value in refused for value in _values_at(request, path)):
            raise UnsupportedError("NOT_BUILT", f"not supported: {reason}", path)


def _messages(message: Message, path: str, depth: int) -> Iterator[tuple[str, Message]]:
    if depth > _MAX_DEPTH:
        raise InvalidField("TOO_DEEP", f"nested deeper than {_MAX_DEPTH}", path.rstrip("."))
    yield path, message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for index, inner in enumerate(value if field.is_repeated else [value]):
            name = f"{field.name}[{index}]" if field.is_repeated else field.name
            yield from _messages(inner, f"{path}{name}.", depth + 1)


def _check_enum(kind: EnumDescriptor, numbers: Iterable[int], path: str) -> None:
    for number in numbers:
        if number not in kind.values_by_number:
            known = ", ".join(entry.name for entry in kind.values)
            raise InvalidField("UNKNOWN_ENUM", f"{number} is not known; use one of {known}", path)


def _values_at(message: Message, path: str) -> list[object]:
    """Return the value of a set field, in a list; an empty list where it is not set."""
    name, _, rest = path.partition(".")
    field: FieldDescriptor = message.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        return list(getattr(message, name))
    if not message.HasField(name):
        return []
    value = getattr(message, name)
    return _values_at(value, rest) if rest else [value]
