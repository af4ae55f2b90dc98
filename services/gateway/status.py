"""Contract errors as gRPC statuses with google.rpc details; nothing leaks as UNKNOWN."""

from __future__ import annotations

import functools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from services.contract.errors import ContractError, ExhaustedError, InternalError, TooLargeError
from services.runtime.log import get_logger

DOMAIN = "lumotree"
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


def stream(handler: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    """Answer a streaming call like `unary` does."""

    @functools.wraps(handler)
    async def answered(
        self: Any, request: Any, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        try:
            async for message in handler(self, request, context):
                yield message
        except Exception as error:
            await abort(context, _contract_error(error))

    return answered


def _contract_error(error: Exception) -> ContractError:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, ContractError):
        return error
    error_id = secrets.token_hex(4)
    _LOG.error("call failed", kind=type(error).__name__, error_id=error_id)
    return InternalError("DEFECT", f"the server failed; quote error {error_id} to its operator")
