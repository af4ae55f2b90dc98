"""Bearer-token check on every method but health."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

import grpc

from services.contract.errors import UnauthenticatedError
from services.gateway import status

_OPEN_PREFIX = "/grpc.health.v1.Health/"


class BearerAuth(grpc.aio.ServerInterceptor):
    """Refuse calls whose `authorization` metadata is not `Bearer TOKEN`.

    The comparison takes the same time for every wrong token.
    """

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """Pass an allowed call on; answer any other one with UNAUTHENTICATED."""
        handler = await continuation(details)
        if handler is None or details.method.startswith(_OPEN_PREFIX):
            return handler
        sent = dict(details.invocation_metadata or ()).get("authorization", "")
        given = sent if isinstance(sent, bytes) else sent.encode()
        if hmac.compare_digest(given, self._expected):
            return handler
        return _refusing(handler)


def _refusing(handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
    error = UnauthenticatedError("BAD_TOKEN", "send metadata authorization: Bearer TOKEN")

    async def refuse_unary(request: object, context: grpc.aio.ServicerContext) -> None:
        del request
        await status.abort(context, error)

    async def refuse_stream(requests: object, context: grpc.aio.ServicerContext) -> None:
        del requests
        await status.abort(context, error)

    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(refuse_stream)
    return grpc.unary_unary_rpc_method_handler(refuse_unary)
