"""Optimisers of trainers: those of `stoilo.learn.core.optimizers`, torch's own, DC-ASGD."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.optimizers import (
    AdaDelta,
    Adagrad,
    Adam,
    Momentum,
    Optimizer,
    RmsProp,
    Sgd,
    Yogi,
    blend,
    cast_like,
)
from stoilo.learn.core.states import State, Stateful, parse, render
from stoilo.learn.core.tensors import Array, Tensors

if TYPE_CHECKING:
    import torch

__all__ = [
    "AdaDelta",
    "Adagrad",
    "Adam",
    "Compensation",
    "Momentum",
    "Optimizer",
    "RmsProp",
    "Sgd",
    "TorchOptimizer",
    "Yogi",
    "blend",
    "cast_like",
]


class TorchOptimizer:
    """Steps of any torch optimiser class that needs one gradient a step.

    Args:
        kind: the class, for example ``torch.optim.Adam``.
        options: its keyword arguments.
        like: parameters whose names and forms all steps have.

    Raises:
        UsageError: ``STO-T040`` for a class whose steps need more than a gradient.
    """

    def __init__(
        self,
        kind: type[torch.optim.Optimizer],
        options: Mapping[str, Any],
        like: Tensors,
    ) -> None:
        _check_kind(kind)
        self._weights = {n: _parameter(a) for n, a in like.items()}
        self._optimizer = kind(self._weights.values(), **options)
        self.kind, self.options = kind, dict(options)  # what a checkpoint is known by

    @property
    def rate(self) -> float:
        """The learning rate of the first group."""
        return float(self._optimizer.param_groups[0]["lr"])

    @rate.setter
    def rate(self, rate: float) -> None:
        """Set it in every group."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after one step; a name without gradient stays."""
        import torch  # noqa: PLC0415 - only with a torch model

        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(_tensor(parameters[name], weight))
                found = gradient.get(name)
                # None, not zeros: torch then leaves weight and state alone.
                weight.grad = None if found is None else _tensor(found, weight)
        self._optimizer.step()
        return {n: w.detach().numpy().copy() for n, w in self._weights.items()}

    def save(self) -> State:
        """Return the optimiser's state: by the weights' numbers, as torch has it."""
        held = self._optimizer.state_dict()["state"]
        state = {
            index: {n: _as_saved(v) for n, v in of.items()}
            for index, of in held.items()
        }
        return render({"rate": self.rate, "state": state})

    def load(self, state: State) -> None:
        """Go on from a saved state; raises ``STO-T012`` when it is of another optimiser."""
        import torch  # noqa: PLC0415 - as above

        saved = parse(state, _Saved)
        held = {
            int(index): {
                name: torch.from_numpy(np.array(state.tensors[value]))
                if isinstance(value, str) and value in state.tensors
                else value
                for name, value in of.items()
            }
            for index, of in saved.state.items()
        }
        # Of this process: groups hold options that a checkpoint does not know.
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": held, "param_groups": groups})
        self.rate = saved.rate


@dataclass(frozen=True, slots=True)
class _Saved:
    """What `TorchOptimizer` saves: of an array, its name."""

    rate: float
    state: dict[str, dict[str, Any]]


def _as_saved(value: Any) -> Any:  # noqa: ANN401 - a tensor, a number, None
    return value.detach().numpy().copy() if hasattr(value, "detach") else value


def _check_kind(kind: type[torch.optim.Optimizer]) -> None:
    import torch  # noqa: PLC0415 - as above

    step = inspect.signature(kind.step).parameters.get("closure")
    if step is not None and step.default is inspect.Parameter.empty:
        why = "computes the loss several times in each step"
    elif kind is torch.optim.SparseAdam:
        why = "takes sparse gradients only"
    else:
        return
    raise UsageError(
        "STO-T040",
        f"{kind.__name__} cannot be used here: it {why}",
        hint="SGD, Adam and the like; for L-BFGS there is the SandblasterTrainer",
    )


def _parameter(array: Array) -> torch.nn.Parameter:
    import torch  # noqa: PLC0415 - as above

    return torch.nn.Parameter(torch.from_numpy(np.array(array)))


def _tensor(array: Array, like: torch.Tensor) -> torch.Tensor:
    import torch  # noqa: PLC0415 - as above

    return torch.from_numpy(np.array(array)).to(like.dtype).reshape(like.shape)


class Compensation(Stateful):
    """What a late gradient would be now, to first order: DC-ASGD (Zheng et al. 2017, §4).

    ``g + λ·g⊙g⊙(w - w₀)``, where ``w₀`` is what the gradient is of, ``λ = λ0/√(M + ε)`` and
    ``M ← m·M + (1-m)·g²``: λ is made anew of λ0 for each push. ``w₀`` comes with the order,
    so that a replica never seen before is like any other.
    """

    kept = Stateful.kept | {"_squares": dict[str, Array]}

    def __init__(
        self, strength: float, *, kept: float = 0.95, epsilon: float = 1e-7
    ) -> None:
        self.strength = strength
        self.share_kept = kept
        self.epsilon = epsilon
        self._squares: dict[str, Array] = {}

    def correct(
        self, gradient: Tensors, base: Tensors, now: Tensors
    ) -> dict[str, Array]:
        """Return the gradient at `base` as it would be at `now`; strength 0: as it is."""
        if not self.strength:
            return dict(gradient)
        return {
            name: self._move(name, g, now[name] - base[name])
            for name, g in gradient.items()
        }

    def _move(self, name: str, slope: Array, way: Array) -> Array:
        square = slope * slope
        mean = self._squares[name] = blend(
            self._squares.get(name), square, self.share_kept
        )
        factor = self.strength / np.sqrt(mean + self.epsilon)
        return cast_like(slope + factor * square * way, slope)
