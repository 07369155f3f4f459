"""`torch.Tensor`: what the class itself needs so that its closed names stay closed.

The library's own Python code reaches memory through names that the level closes
(``untyped_storage``, ``set_``); where honest programs need what it does, it is done here.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from stoilo.sandbox.language.stand_ins import StandIn

__all__ = ["guard_tensors"]

_Base: Any = torch._C.TensorBase  # noqa: SLF001 - its methods cannot be replaced
_data: Any = _Base.data
_kept: list[torch.Tensor] = []


def _deepcopy(self: Any, memo: dict[Any, Any]) -> Any:
    """``Tensor.__deepcopy__``: tensors that shared memory share it after."""
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("only tensors made by the user (leaves) can be deep-copied")
    with torch.no_grad():
        storage = copy.deepcopy(_Base.untyped_storage(self), memo)
        made = torch.zeros([], dtype=self.dtype)
        place = (self.storage_offset(), self.size(), self.stride())
        _Base.set_(made, storage, *place)
        made = made.conj() if self.is_conj() else made
        made.requires_grad_(self.requires_grad)
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
    memo[id(self)] = made
    return made


def _is_lent(tensor: Any) -> bool:
    """Whether an array of numpy may stand on this tensor's memory."""
    return not _Base.untyped_storage(tensor).resizable()


def _set_data(self: Any, value: Any) -> None:
    """Assign ``Tensor.data``; memory that numpy may still look at is kept.

    The array holds the tensor and not its memory, which this would free.
    """
    if _is_lent(self):
        _kept.append(_data.__get__(self))
    _data.__set__(self, value)


def _convert(self: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
    """``Tensor.type``, which also takes our stand-ins such as ``torch.LongTensor``."""
    if isinstance(dtype, StandIn):
        dtype = dtype.__stoilo_real__
    return _Base.type(self, dtype, *args, **options)


def _zeros_for(self: Any, *size: Any, **options: Any) -> Any:
    """``Tensor.new_empty``: zeros, since free memory differs between honest copies."""
    return self.new_zeros(*size, **options)


def guard_tensors() -> None:
    """Put the replacements into the class (in the zygote, once)."""
    tensor: Any = torch.Tensor
    tensor.__deepcopy__ = _deepcopy
    tensor.data = property(_data.__get__, _set_data)
    tensor.type = _convert
    tensor.new_empty = _zeros_for
