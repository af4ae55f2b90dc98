"""Re-exports the generated modules, so that no other room imports the package that holds them.

`generation_pb2_grpc` is loaded on first use: it imports grpc, which only the service needs.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from services.contract._pb import generation_pb2, path_pb2, stage_pb2, tree_pb2

if TYPE_CHECKING:
    from services.contract._pb import generation_pb2_grpc

__all__ = ["generation_pb2", "generation_pb2_grpc", "path_pb2", "stage_pb2", "tree_pb2"]


def __getattr__(name: str) -> ModuleType:
    if name != "generation_pb2_grpc":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("services.contract._pb.generation_pb2_grpc")
