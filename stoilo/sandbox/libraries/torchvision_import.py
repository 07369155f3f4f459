"""Torchvision beside a torch that its native operators were not built for.

The wheel of a package registry is built for torch with CUDA; beside torch for processors
its library does not load and ``import torchvision`` ends in an error. What can be said in
torch's own operations is: non-maximum suppression, and region pooling by bilinear
interpolation, which torchvision itself has in Python. The other operators do not exist then.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_kept: list[Any] = []  # an operator ends with what registered it


def import_torchvision() -> ModuleType:
    """Return torchvision, also where its native operators do not fit this torch.

    Afterwards ``import torchvision`` works in this process as usual.
    """
    try:
        torchvision = importlib.import_module("torchvision")
    except RuntimeError as error:  # operator torchvision::nms does not exist
        if "torchvision::nms" not in str(error):
            raise
        _define_operators()
        torchvision = importlib.import_module("torchvision")
    extension: Any = sys.modules["torchvision.extension"]
    if not extension._has_ops():  # noqa: SLF001 - says whether its library was loaded
        _use_torch_alone()
    return torchvision


def _define_operators() -> None:
    torch = importlib.import_module("torch")
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}{_BOXES}")
    library.impl("nms", nms, "CPU")
    _kept.append(library)


def _use_torch_alone() -> None:
    boxes: Any = importlib.import_module("torchvision.ops.boxes")
    regions: Any = importlib.import_module("torchvision.ops.roi_align")
    vars(boxes)["_assert_has_ops"] = _nothing
    compiled = vars(regions)["_roi_align"]  # its Python version, and not compiled
    plain = getattr(compiled, "__wrapped__", compiled)
    vars(regions).update(is_compile_supported=_always, _roi_align=plain)


def _nothing() -> None:
    pass


def _always(_device: object) -> bool:
    return True


def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """Return the indices of the boxes that stay, best first, int64.

    Args:
        dets: ``(boxes, 4)``, each left, top, right, bottom.
        scores: ``(boxes,)``; of equal ones the first box counts as better.
        iou_threshold: a box goes that overlaps a better one by more.
    """
    left, top, right, bottom = dets.unbind(1)
    areas = (right - left) * (bottom - top)
    order = scores.argsort(descending=True, stable=True)
    kept: list[Any] = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        width = right[best].minimum(right[order]) - left[best].maximum(left[order])
        height = bottom[best].minimum(bottom[order]) - top[best].maximum(top[order])
        shared = width.clamp(min=0) * height.clamp(min=0)
        overlap = shared / (areas[best] + areas[order] - shared)
        order = order[~(overlap > iou_threshold)]
    return order.new_tensor(kept)
