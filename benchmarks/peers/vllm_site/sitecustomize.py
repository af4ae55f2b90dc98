"""Declare the torchvision operators whose compiled code another torch build does not load.

vLLM imports torchvision for image inputs; text models never call these operators.
"""

import importlib.util

if importlib.util.find_spec("torch") is not None:
    import torch

    _LIBRARY = torch.library.Library("torchvision", "DEF")
    _LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
