"""What is trained: the parameters' names and forms, and the source that computes on them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.tensors import Tensors
from stoilo.learn.work import Snapshot

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ArrayModel", "Kernel", "Model", "TorchModel", "find_momentum"]

Kernel = Callable[[dict[str, Any]], dict[str, Any]]


class Model(Protocol):
    """What a run needs to know of a model."""

    @property
    def level(self) -> str:
        """The policy level that its kernels need."""

    def first(self) -> Snapshot:
        """Return version 0."""

    def kernel(self, name: str) -> Kernel:
        """Return the task function of that name."""

    def constants(self) -> Mapping[str, object]:
        """Return what goes into every task beside snapshot, data and settings."""


@dataclass(frozen=True)
class ArrayModel:
    """A model of plain arrays with its own gradient: level `numeric`, no torch.

    Attributes:
        parameters: name → array of a floating type, the starting point.
        function: ``(parameters, x, y) -> (sum of losses, name → gradient of that sum)``;
            travels as source.
    """

    parameters: Tensors
    function: Callable[[Tensors, Any, Any], tuple[float, Tensors]]
    level: str = field(default="numeric", init=False)

    def __post_init__(self) -> None:
        """Refuse parameters that no gradient step could change."""
        _check_parameters(self.parameters)

    def first(self) -> Snapshot:
        """Return version 0, a copy."""
        return Snapshot(0, {n: np.array(a) for n, a in self.parameters.items()})

    def kernel(self, name: str) -> Kernel:
        """Return the kernel for arrays of that name."""
        from stoilo.learn.kernels import arrays  # noqa: PLC0415 - as for torch

        return _find_kernel(arrays, name)

    def constants(self) -> Mapping[str, object]:
        """Return the researcher's function."""
        return {"function": self.function}


@dataclass(frozen=True)
class TorchModel:
    """A torch module and a loss: level `tensor`.

    Attributes:
        module: of a torch class or the researcher's own, which travels as source. It is
            not changed: see `Run.snapshot` and `load_into`.
        loss: ``(output, y) -> scalar tensor``; travels as source.
        reduction: ``mean`` where the loss divides by the number of samples, else ``sum``.
    """

    module: nn.Module
    loss: Callable[[Any, Any], Any]
    reduction: str = "mean"
    level: str = field(default="tensor", init=False)

    def __post_init__(self) -> None:
        """Refuse reductions and parameters that sums could not be made of."""
        if self.reduction not in {"mean", "sum"}:
            raise UsageError(
                "STO-T002",
                f"a loss cannot be reduced by {self.reduction!r}",
                hint="reduction is 'mean' or 'sum'",
            )
        _check_parameters(self.first().parameters)

    def first(self) -> Snapshot:
        """Return version 0: copies of trainable parameters, and of buffers."""
        named = self.module.named_parameters()
        return Snapshot(
            0,
            {name: p.detach().numpy().copy() for name, p in named if p.requires_grad},
            {name: b.numpy().copy() for name, b in self.module.named_buffers()},
        )

    def kernel(self, name: str) -> Kernel:
        """Return the kernel for torch of that name."""
        from stoilo.learn.kernels import torches  # noqa: PLC0415 - needs torch

        return _find_kernel(torches, name)

    def constants(self) -> Mapping[str, object]:
        """Return the module without what is trained, which each snapshot brings; the loss."""
        return {"model": self._shape, "loss": self.loss, "reduction": self.reduction}

    @functools.cached_property
    def _shape(self) -> nn.Module:
        """A copy whose trained parameters and buffers are zero: the same in every task."""
        import torch  # noqa: PLC0415 - only here

        shape = copy.deepcopy(self.module)
        with torch.no_grad():
            for p in shape.parameters():
                p.grad = None
                if p.requires_grad:
                    p.zero_()
            for b in shape.buffers():
                b.zero_()
        return shape

    def load_into(self, snapshot: Snapshot) -> nn.Module:
        """Put a snapshot into the researcher's module and return it, for evaluation."""
        import torch  # noqa: PLC0415 - only here

        with torch.no_grad():
            for name, p in self.module.named_parameters():
                if name in snapshot.parameters:
                    p.copy_(torch.from_numpy(np.array(snapshot.parameters[name])))
            for name, b in self.module.named_buffers():
                if name in snapshot.buffers:
                    b.copy_(torch.from_numpy(np.array(snapshot.buffers[name])))
        return self.module


def find_momentum(module: nn.Module) -> float:
    """Return the momentum of the model's BatchNorm layers; torch's default without any."""
    found = [getattr(part, "momentum", None) for part in module.modules()]
    return next((float(m) for m in found if isinstance(m, float)), 0.1)


def _check_parameters(parameters: Tensors) -> None:
    if not parameters:
        raise UsageError(
            "STO-T001", "the model has no trainable parameters", hint="nothing to train"
        )
    for name, array in parameters.items():
        if not np.issubdtype(array.dtype, np.floating):
            raise UsageError(
                "STO-T001",
                f"parameter {name} has type {array.dtype}, which no gradient can change",
                hint="use float32 or float64",
            )


def _find_kernel(module: object, name: str) -> Kernel:
    if name not in getattr(module, "__all__", ()):
        raise UsageError(
            "STO-T003",
            f"this kind of model has no kernel {name!r}",
            hint=f"kernels: {', '.join(getattr(module, '__all__', ()))}",
        )
    found: Kernel = getattr(module, name)
    return found
