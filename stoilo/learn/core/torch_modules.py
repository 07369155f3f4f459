"""Torch modules as this package sees them: what is trained, what travels, what cannot.

On the wire every number of half precision is a float32: numpy has no bfloat16, and sums of
float16 run out of room at 65504. The module itself goes on computing in its own types.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.tensors import Array

if TYPE_CHECKING:
    import torch
    from torch import nn

    from stoilo.learn.core.parts import Part


USUAL = 0.1  # torch's default


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that keeps running statistics.

    Attributes:
        name: as its buffers have it in front.
        momentum: of the running statistics; None for a cumulative average, whose share is
            one over the number of passes.
        values: of each channel in one sample (1, or the size of an image there); 0 where
            that is not known, or the layer is used several times in a pass.
    """

    name: str
    momentum: float | None = USUAL
    values: int = 0

    def share(self, passes: float) -> float:
        """Return the share of the last of so many passes in the statistics."""
        if self.momentum is None:
            return 1.0 / max(1.0, passes)
        return self.momentum


@dataclass(frozen=True, slots=True)
class Momenta:
    """Those of a model; the same for all layers that are not among `layers`."""

    layers: tuple[Layer, ...] = ()
    usual: float = USUAL

    def find(self, name: str) -> Layer:
        """Return what is known of the layer called `name`."""
        known = {layer.name: layer for layer in self.layers}
        return known.get(name) or Layer(name, self.usual)


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
    # numpy has no bfloat16, and sums of float16 overflow at 65504.
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
    # A copy: the researcher's own module is never changed by being sent.
    shape = copy.deepcopy(module).train()
    for p in shape.parameters():
        p.grad = None
        if p.requires_grad:
            p.data = p.data.new_empty(0)
    for b in shape.buffers():
        b.data = b.data.new_empty(0)
    return shape


def find_momentum(module: nn.Module, part: Part | None = None) -> Momenta:
    """Return the momentum of each layer that keeps running statistics.

    Args:
        module: the model.
        part: samples as the model will see them, to count a layer's values with.
    """
    found = {
        name: layer
        for name, layer in module.named_modules()
        if getattr(layer, "running_var", None) is not None
        and hasattr(layer, "momentum")
    }
    values = _count_values(module, [*found], part) if part is not None else {}
    return Momenta(
        tuple(
            Layer(name, _momentum_of(layer), values.get(name, 0))
            for name, layer in found.items()
        )
    )


def _momentum_of(layer: Any) -> float | None:  # noqa: ANN401 - torch's or one's own
    return None if layer.momentum is None else float(layer.momentum)


def _count_values(module: nn.Module, names: list[str], part: Part) -> dict[str, int]:
    """Return how many values of a channel one sample has in each layer, where once used."""
    import torch  # noqa: PLC0415 - only with a module

    few, copied = part.take(slice(0, 1)), copy.deepcopy(module).eval()
    seen: dict[str, list[int]] = {name: [] for name in names}
    for name in names:
        copied.get_submodule(name).register_forward_hook(
            lambda _, given, __, kept=seen[name]: kept.append(
                given[0].numel() // given[0].shape[1]
            )
        )
    inputs = few.x if isinstance(few.x, tuple) else (few.x,)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            copied(*[torch.as_tensor(one) for one in inputs])
    except Exception:  # noqa: BLE001 - the researcher's own code: volunteers report it
        return {}
    return {name: counts[0] for name, counts in seen.items() if len(counts) == 1}
