"""What researchers give a trainer, in the forms that runs take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from stoilo.core.errors import UsageError
from stoilo.learn.data import Part, count_samples, split
from stoilo.learn.models import Model, TorchModel
from stoilo.learn.trainers.datasets import read_arrays

if TYPE_CHECKING:
    from stoilo.learn.trainers.options import TrainerOptions

__all__ = ["Loss", "as_held_out", "as_model", "as_parts"]

Loss: TypeAlias = Callable[[Any, Any], Any]
"""``(output, target) -> scalar``."""


def as_model(model: object, loss: Loss | None = None) -> Model:
    """Return `model` as volunteers can compute with it.

    Raises:
        UsageError: ``STO-T080`` for a torch module without a loss.
    """
    if hasattr(model, "first") and hasattr(model, "kernel"):
        return model  # type: ignore[return-value]  # a Model: it has a model's methods
    if loss is None or not hasattr(model, "named_parameters"):
        raise UsageError(
            "STO-T080",
            f"a {type(model).__name__} cannot be trained like that",
            hint="give an ArrayModel, a TorchModel, or a torch module and a loss",
        )
    return TorchModel(model, loss)  # type: ignore[arg-type]  # it has a module's methods


def as_parts(data: object, options: TrainerOptions) -> list[Part]:
    """Return the data parts: those given, or the dataset split at random."""
    if isinstance(data, list) and data and all(isinstance(p, Part) for p in data):
        return list(data)
    x, y = read_arrays(data)
    return split(x, y, min(options.tasks, count_samples(x)), seed=options.seed)


def as_held_out(data: object) -> Part | None:
    """Return held-out data as one part."""
    if data is None or isinstance(data, Part):
        return data
    return Part(*read_arrays(data))
