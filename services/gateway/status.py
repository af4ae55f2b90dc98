"""Contract errors as gRPC statuses with google.rpc details; nothing leaks as UNKNOWN."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from services.contract.errors import ContractError, ExhaustedError, InternalError, TooLargeError
from services.runtime.log import get_logger

DOMAIN = "lumotree"
READER_IDLE_SECONDS = 30.0
_DETAILS_KEY = "grpc-status-details-bin"
_LOG = get_logger("gateway.status")
_RETRY = Duration(seconds=1)


def rich_status(error: ContractError, metadata: dict[str, str] | None = None) -> status_pb2.Status:
    """Return the google.rpc.Status of an error: reason, field at fault, when to retry."""
    code = grpc.StatusCode[error.code]
    status = status_pb2.Status(code=code.value[0], message=str(error))
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata or {})
    status.details.add().Pack(info)
    if error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=error.message
        )
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, ExhaustedError) and not isinstance(error, TooLargeError):
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=_RETRY))
    return status


async def abort(
    context: grpc.aio.ServicerContext, error: ContractError, metadata: dict[str, str] | None = None
) -> None:
    """End a call with the status of an error."""
    details = rich_status(error, metadata).SerializeToString()
    await context.abort(grpc.StatusCode[error.code], str(error), ((_DETAILS_KEY, details),))


def unary(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Answer a unary call; contract errors become their status, defects INTERNAL with an id."""

    @functools.wraps(handler)
    async def answered(self: Any, request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await handler(self, request, context)
        except Exception as error:
            await abort(context, _contract_error(error))

    return answered


def stream(handler: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., Awaitable[None]]:
    """Answer a streaming call like `unary` does.

    A reader that takes nothing for READER_IDLE_SECONDS ends its call: the work stops at once,
    and the reader finds the status when it reads on.
    """

    @functools.wraps(handler)
    async def answered(self: Any, request: Any, context: grpc.aio.ServicerContext) -> None:
        try:
            async with aclosing(handler(self, request, context)) as messages:
                async for message in messages:
                    await _write(context, message)
        except Exception as error:
            await abort(context, _contract_error(error))

    return answered


async def _write(context: grpc.aio.ServicerContext, message: Any) -> None:
    try:
        async with asyncio.timeout(READER_IDLE_SECONDS):
            await context.write(message)
    except TimeoutError:
        text = f"nothing was read for {READER_IDLE_SECONDS:.0f} s; read faster"
        raise ExhaustedError("SLOW_READER", text) from None


def _contract_error(error: Exception) -> ContractError:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, ContractError):
        return error
    error_id = secrets.token_hex(4)
    _LOG.error("call failed", kind=type(error).__name__, error_id=error_id)
    return InternalError("DEFECT", f"the server failed; quote error {error_id} to its operator")
