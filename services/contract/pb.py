"""Re-exports the generated modules, so that no other room imports the package that holds them."""

from services.contract._pb import path_pb2, stage_pb2, tree_pb2

__all__ = ["path_pb2", "stage_pb2", "tree_pb2"]
