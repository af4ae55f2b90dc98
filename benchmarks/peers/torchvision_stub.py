"""Declare the torchvision operators whose compiled code another torch build does not load.

vLLM imports torchvision for image inputs; text models never call these operators. `make peers`
puts this file where every process of its environment loads it.
"""

import sys
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Declare(MetaPathFinder):
    """Declare the operators before torchvision is first looked for; find nothing."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> None:
        """Return None: others find modules."""
        if name != "torchvision":
            return
        sys.meta_path.remove(self)
        import torch

        global _LIBRARY
        _LIBRARY = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            _LIBRARY.define(
                f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )


sys.meta_path.insert(0, _Declare())
