"""What is trained: the parameters' names and forms, and the source that computes on them."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.sandbox.libraries.torchvision_import import import_torchvision  # noqa: F401 - public there

if TYPE_CHECKING:
    import torch
    from torch import nn

    from stoilo.learn.core.data import Part


def check_module(module: nn.Module) -> None:
    """Refuse a module that volunteers could not be sent, or whose numbers do not travel.

    Raises:
        UsageError: ``STO-T001`` naming the parameter or buffer, and why.
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in named:
        problem = _problem_of(tensor)
        if problem:
            raise UsageError("STO-T001", f"{name} {problem[0]}", hint=problem[1])


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


def make_arguments(
    model: Model,
    snapshot: Snapshot,
    part: Part,
    settings: Mapping[str, object],
) -> dict[str, Any]:
    """Return a kernel's arguments to be called here: copies, which it may change."""
    given = {
        **model.constants(),
        "parameters": dict(snapshot.parameters),
        "buffers": dict(snapshot.buffers),
        "data": {"x": part.x, "y": part.y},
        "rows": None,
        "settings": dict(settings),
        "version": snapshot.version,
    }
    return copy.deepcopy(given)


@dataclass(frozen=True)
class ArrayModel:
    """A model of plain arrays with its own gradient: level `numeric`, no torch.

    Attributes:
        parameters: name → array of a floating type, the starting point.
        function: ``(parameters, x, y) -> (sum of losses, name → gradient of that sum)``;
            travels as source.
        predict: ``(parameters, x) -> labels``, whole numbers, one a sample; without it
            nobody counts what was right.
    """

    parameters: Tensors
    function: Callable[[Tensors, Any, Any], tuple[float, Tensors]]
    predict: Callable[[Tensors, Any], Any] | None = None
    level: str = field(default="numeric", init=False)

    def __post_init__(self) -> None:
        """Refuse parameters that no gradient step could change."""
        _check_parameters(self.parameters)

    def first(self) -> Snapshot:
        """Return version 0, a copy."""
        return Snapshot(0, {n: np.array(a) for n, a in self.parameters.items()})

    def kernel(self, name: str) -> Kernel:
        """Return the kernel for arrays of that name."""
        from stoilo.learn.kernels import array_models  # noqa: PLC0415 - as for torch

        return _find_kernel(array_models, name)

    def constants(self) -> Mapping[str, object]:
        """Return the researcher's functions."""
        if self.predict is None:
            return {"function": self.function}
        return {"function": self.function, "predict": self.predict}


@dataclass(frozen=True)
class TorchModel:
    """A torch module and a loss: level `tensor`.

    Attributes:
        module: of a torch class or the researcher's own, which travels as source. It is
            not changed: see `Run.snapshot` and `load_into`.
        loss: ``(output, y) -> scalar tensor``; travels as source. Of several inputs or
            targets it gets tuples.
        reduction: ``mean`` where the loss divides by the number of samples, else ``sum``;
            what the loss itself says (torch's classes do), else the mean, when None.
        autocast: compute forward in bfloat16 while training, under ``torch.autocast``;
            weights, gradients and evaluations stay as they are. On processors it saves
            memory, no time.
    """

    module: nn.Module
    loss: Callable[[Any, Any], Any]
    reduction: str | None = None
    autocast: bool = False
    level: str = field(default="tensor", init=False)

    def __post_init__(self) -> None:
        """Refuse reductions and parameters that sums could not be made of."""
        object.__setattr__(
            self, "reduction", _read_reduction(self.loss, self.reduction)
        )
        check_module(self.module)
        _check_parameters(self.first().parameters)

    def first(self) -> Snapshot:
        """Return version 0: copies of trainable parameters, and of buffers."""
        return Snapshot(0, read_trained(self.module), read_buffers(self.module))

    def kernel(self, name: str) -> Kernel:
        """Return the kernel for torch of that name."""
        from stoilo.learn.kernels import torch_models  # noqa: PLC0415 - needs torch

        return _find_kernel(torch_models, name)

    def constants(self) -> Mapping[str, object]:
        """Return the module without what is trained, which each snapshot brings; the loss."""
        further = {"autocast": True} if self.autocast else {}
        about = {"model": self._shape, "loss": self.loss, "reduction": self.reduction}
        return {**about, **further}

    @functools.cached_property
    def _shape(self) -> nn.Module:
        return make_shape(self.module)

    def load_into(self, snapshot: Snapshot) -> nn.Module:
        """Put a snapshot into the researcher's module and return it, for evaluation."""
        write_arrays(self.module, dict(snapshot.parameters), dict(snapshot.buffers))
        return self.module


def _read_reduction(loss: object, given: str | None) -> str:
    """Return ``mean`` or ``sum``: what the caller says, and the loss where it says it.

    Raises:
        UsageError: ``STO-T001`` when they differ, or it is neither.
    """
    said = getattr(loss, "reduction", None)
    # KL divergence's name for the mean that is meant here.
    said = "mean" if said == "batchmean" else said
    found = given or said or "mean"
    if found not in {"mean", "sum"} or (isinstance(said, str) and said != found):
        given_word = "" if given is None else f", and {given!r} was asked for"
        raise UsageError(
            "STO-T001",
            f"the loss's reduction is {said or found!r}{given_word}",
            hint="'mean' or 'sum', as the loss has it: gradients are added up",
        )
    return str(found)


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
            "STO-T040",
            f"this kind of model has no kernel {name!r}",
            hint=f"kernels: {', '.join(getattr(module, '__all__', ()))}",
        )
    found: Kernel = getattr(module, name)
    return found


_TORCH = threading.RLock()


def torch_lock(level: str) -> AbstractContextManager[object]:
    """Return what is held while a kernel of that level runs here."""
    return _TORCH if level == "tensor" else contextlib.nullcontext()


_CLASSES = {
    "CrossEntropyLoss",
    "MSELoss",
    "L1Loss",
    "SmoothL1Loss",
    "HuberLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
}
_FUNCTIONS = {
    "cross_entropy",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
}


def find_least_loss(model: Model) -> float:
    """Return the least loss of one sample: 0 for torch's losses that are known, else -inf.

    NLLLoss is none of them: it is at least 0 only after a log_softmax. Nor is a class that
    inherits from one of them, whose forward may be another.
    """
    if not isinstance(model, TorchModel):
        return -math.inf
    kind, loss = type(model.loss), model.loss
    is_class = kind.__module__ == "torch.nn.modules.loss" and kind.__name__ in _CLASSES
    place, name = getattr(loss, "__module__", ""), getattr(loss, "__name__", "")
    is_function = place == "torch.nn.functional" and name in _FUNCTIONS
    return 0.0 if is_class or is_function else -math.inf
