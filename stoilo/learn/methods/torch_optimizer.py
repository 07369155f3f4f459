"""A torch optimiser at the coordinator, behind the protocol `Optimizer`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Plain, State
from stoilo.learn.core.tensors import Array, Tensors

if TYPE_CHECKING:
    from torch.optim import Optimizer


class TorchOptimizer:
    """Steps of any torch optimiser class that needs one gradient a step.

    Args:
        kind: the class, for example ``torch.optim.Adam``.
        options: its keyword arguments.
        like: parameters whose names and forms all steps have.

    Raises:
        UsageError: ``STO-T009`` for a class whose steps need more than a gradient.
    """

    def __init__(
        self, kind: type[Optimizer], options: Mapping[str, Any], like: Tensors
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
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(_tensor(parameters[name], weight))
                found = gradient.get(name)
                # None, not zeros: torch then leaves weight and state alone.
                weight.grad = None if found is None else _tensor(found, weight)
        self._optimizer.step()
        return {n: w.detach().numpy().copy() for n, w in self._weights.items()}

    def save(self) -> State:
        """Return the optimiser's state: arrays by ``index/name``, the rest as data."""
        saved = self._optimizer.state_dict()
        tensors: dict[str, Array] = {}
        plain: dict[str, Plain] = {}
        for index, held in saved["state"].items():
            for name, value in held.items():
                if isinstance(value, torch.Tensor):
                    tensors[f"{index}/{name}"] = value.numpy().copy()
                else:
                    plain[f"{index}/{name}"] = value
        return State(tensors, {"state": plain, "rate": self.rate})

    def load(self, state: State) -> None:
        """Go on from a saved state.

        Raises:
            UsageError: ``STO-T012`` when it is of another optimiser.
        """
        held: dict[int, dict[str, Any]] = {}
        numbers = state.plain.get("state", {})
        if not isinstance(numbers, dict):
            raise UsageError("STO-T012", "the optimiser's state has no names")
        for place, array in state.tensors.items():
            index, _, name = place.partition("/")
            held.setdefault(int(index), {})[name] = torch.from_numpy(np.array(array))
        for place, value in numbers.items():
            index, _, name = place.partition("/")
            held.setdefault(int(index), {})[name] = value
        # Of this process: groups hold options that a checkpoint does not know.
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": held, "param_groups": groups})
        self.rate = json.loads(json.dumps(state.plain["rate"]))


def _check_kind(kind: type[Optimizer]) -> None:
    """Refuse optimisers that a step from one dense gradient cannot be made with."""
    step = inspect.signature(kind.step).parameters.get("closure")
    if step is not None and step.default is inspect.Parameter.empty:
        why = "computes the loss several times in each step"
    elif kind is torch.optim.SparseAdam:
        why = "takes sparse gradients only"
    else:
        return
    raise UsageError(
        "STO-T009",
        f"{kind.__name__} cannot be used here: it {why}",
        hint="SGD, Adam and the like; for L-BFGS there is the SandblasterTrainer",
    )


def _parameter(array: Array) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.from_numpy(np.array(array)))


def _tensor(array: Array, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.array(array)).to(like.dtype).reshape(like.shape)
