"""Bytes of public calls: how many entries they hold is bounded before any message is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from services.contract.errors import ContractError, InvalidField
from services.contract.limits import MAX_ENTRIES, PUBLIC_MESSAGE_BYTES
from services.contract.wire import parse
from services.gateway import status

_SMALL_BYTES: Final = 1 << 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Intake(grpc.aio.ServerInterceptor):
    """Read requests of the given services; bytes that are no request are INVALID_ARGUMENT."""

    def __init__(self, *services: ServiceDescriptor) -> None:
        self._kinds: Mapping[str, Any] = {
            f"/{service.full_name}/{method.name}": GetMessageClass(method.input_type)
            for service in services
            for method in service.methods
        }

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """Return the method's handler, reading its request here."""
        handler, kind = await continuation(details), self._kinds.get(details.method)
        if handler is None or kind is None or handler.request_streaming:
            return handler
        wrap = (
            grpc.unary_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        answer = _reading(kind, handler.unary_stream or handler.unary_unary)
        return wrap(answer, None, handler.response_serializer)


def _reading(
    kind: Any, answer: Callable[[Any, grpc.aio.ServicerContext], Awaitable[Any]]
) -> Callable[[bytes, grpc.aio.ServicerContext], Awaitable[Any]]:
    async def read(data: bytes, context: grpc.aio.ServicerContext) -> Any:
        try:
            check_entries(data, kind.DESCRIPTOR)
            request = parse(kind, data, PUBLIC_MESSAGE_BYTES)
        except ContractError as error:
            await status.abort(context, error)
        return await answer(request, context)

    return read


def check_entries(data: bytes, kind: Descriptor, limit: int = MAX_ENTRIES) -> None:
    """Refuse a message of more than `limit` entries at all depths; small ones cannot hold many.

    An empty message costs two bytes on the wire and about a hundred in memory.
    Raises  InvalidField for too many, or for bytes that are no message.
    """
    if len(data) <= _SMALL_BYTES:
        return
    todo, left = [(0, len(data), kind)], limit
    while todo:
        at, end, descriptor = todo.pop()
        while at < end:
            left -= 1
            if left < 0:
                text = f"more than {limit} entries; send fewer, or ids in packed form"
                raise InvalidField("TOO_MANY_ENTRIES", text)
            tag, at = _varint(data, at, end)
            start, at = _skip(data, at, end, tag & 7)
            inner = _inner(descriptor, tag >> 3)
            if inner is not None and tag & 7 == _BYTES:
                todo.append((start, at, inner))


def _inner(kind: Descriptor, number: int) -> Descriptor | None:
    field: FieldDescriptor | None = kind.fields_by_number.get(number)
    return None if field is None else field.message_type


def _skip(data: bytes, at: int, end: int, wire: int) -> tuple[int, int]:
    """Return where a value's content begins and where the value ends."""
    if wire == _VARINT:
        return at, _varint(data, at, end)[1]
    size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
    if wire == _BYTES:
        size, at = _varint(data, at, end)
    if size is None or at + size > end:
        raise _malformed()
    return at, at + size


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise _malformed()


def _malformed() -> InvalidField:
    return InvalidField("MALFORMED", "these bytes are no such request; send a protobuf message")
