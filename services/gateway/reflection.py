"""Server reflection under both of its names; their messages are the same on the wire."""

from __future__ import annotations

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1 = "grpc.reflection.v1.ServerReflection"


def add_reflection(names: tuple[str, ...], server: grpc.aio.Server) -> None:
    """Let clients list services and read descriptors, by v1 and v1alpha."""
    listed = (*names, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(listed, server)
    handler = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(listed).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    generic = grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": handler})
    server.add_generic_rpc_handlers((generic,))
