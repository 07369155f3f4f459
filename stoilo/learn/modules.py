"""Torch modules as this package sees them: what is trained, what travels, what cannot.

On the wire every number of half precision is a float32: numpy has no bfloat16, and sums of
float16 run out of room at 65504. The module itself goes on computing in its own types.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.momenta import Momenta
from stoilo.learn.tensors import Array

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = [
    "check_module",
    "find_momentum",
    "make_shape",
    "read_buffers",
    "read_trained",
    "write_arrays",
]


def check_module(module: nn.Module) -> None:
    """Refuse a module that volunteers could not be sent, or whose numbers do not travel.

    Raises:
        UsageError: ``STO-T007`` naming the parameter or buffer, and why.
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in named:
        problem = _problem_of(tensor)
        if problem:
            raise UsageError("STO-T007", f"{name} {problem[0]}", hint=problem[1])


def _problem_of(tensor: torch.Tensor) -> tuple[str, str] | None:
    import torch  # noqa: PLC0415 - only with a module

    if torch.nn.parameter.is_lazy(tensor):
        return "has no shape yet", "run the module once on a sample"
    if tensor.device.type != "cpu":
        return f"is on the device {tensor.device}", "model.cpu() brings it here"
    if tensor.layout is not torch.strided:
        return f"has the layout {tensor.layout}", "tensor.to_dense() fills it"
    if tensor.is_quantized:
        return "is quantised", "train the module before it is quantised"
    return None


def read_trained(module: nn.Module) -> dict[str, Array]:
    """Return copies of what is trained; a parameter that several places share, once."""
    named = module.named_parameters()
    return {name: _as_array(p) for name, p in named if p.requires_grad}


def read_buffers(module: nn.Module) -> dict[str, Array]:
    """Return copies of the buffers; places without one are left out."""
    return {name: _as_array(b) for name, b in module.named_buffers()}


def _as_array(tensor: torch.Tensor) -> Array:
    import torch  # noqa: PLC0415 - only with a module

    found = tensor.detach()
    if found.dtype in {torch.float16, torch.bfloat16}:
        found = found.float()
    array: Array = found.numpy()
    return array.copy()


def write_arrays(
    module: nn.Module, parameters: dict[str, Array], buffers: dict[str, Array]
) -> None:
    """Put parameters and buffers of these names into the module, in its own types."""
    import torch  # noqa: PLC0415 - only with a module

    places = [
        (module.named_parameters(), parameters),
        (module.named_buffers(), buffers),
    ]
    with torch.no_grad():
        for named, arrays in places:
            for name, tensor in named:
                if name in arrays:
                    tensor.copy_(torch.from_numpy(np.array(arrays[name])))


def make_shape(module: nn.Module) -> nn.Module:
    """Return a copy whose trained parameters and buffers are empty.

    It is the same in every task, however large the model: each snapshot brings the
    numbers. What is frozen stays in it.
    """
    shape = copy.deepcopy(module)
    for p in shape.parameters():
        p.grad = None
        if p.requires_grad:
            p.data = p.data.new_empty(0)
    for b in shape.buffers():
        b.data = b.data.new_empty(0)
    return shape


def find_momentum(module: nn.Module) -> Momenta:
    """Return the momentum of each layer that keeps running statistics."""
    found = [
        (name, None if layer.momentum is None else float(layer.momentum))
        for name, layer in module.named_modules()
        if getattr(layer, "running_var", None) is not None
        and hasattr(layer, "momentum")
    ]
    return Momenta(tuple(found))
