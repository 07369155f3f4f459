"""Two samples through model and loss before anything is sent.

What would end as a refused answer or a failed task on every volunteer is named here. Errors
of the researcher's own code are not: tasks report those, with their place in his source.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.data import Part
from stoilo.learn.models import ArrayModel, Model, TorchModel
from stoilo.learn.turns import take_turn

__all__ = ["rehearse"]

SAMPLES = 2
NEAR = 1e-3
"""Of the losses' size: what a mean may differ from the mean of its samples' losses."""


def rehearse(model: Model, part: Part) -> None:
    """Refuse a model or loss that gives what training cannot use.

    Raises:
        UsageError: ``STO-T031``: the loss is not one number, or its reduction is another
            than said; a function's gradients are not as its parameters.
    """
    few = part.take(slice(0, SAMPLES))
    if isinstance(model, TorchModel):
        _rehearse_torch(model, few)
    elif isinstance(model, ArrayModel):
        _rehearse_arrays(model, few)


def _rehearse_arrays(model: ArrayModel, few: Part) -> None:
    wanted = {name: array.shape for name, array in model.parameters.items()}
    try:
        _, found = model.function(copy.deepcopy(dict(model.parameters)), few.x, few.y)
        shapes = {name: np.shape(array) for name, array in found.items()}
    except Exception:  # noqa: BLE001 - the researcher's own code: volunteers report it
        return
    if shapes != wanted:
        raise UsageError(
            "STO-T031",
            f"the function returns gradients {shapes} for parameters {wanted}",
            hint="name → gradient, of the parameters' names and shapes",
        )


def _rehearse_torch(model: TorchModel, few: Part) -> None:
    try:
        whole, single = _losses_of(model, few)
    except Exception:  # noqa: BLE001 - the researcher's own code: volunteers report it
        return
    if getattr(whole, "numel", lambda: 0)() != 1:
        shape = tuple(whole.shape) if hasattr(whole, "shape") else type(whole).__name__
        raise UsageError(
            "STO-T031",
            f"the loss of {len(few)} samples is {shape}, not one number",
            hint="let it return the mean or the sum, as a tensor",
        )
    _check_reduction(float(whole), single, str(model.reduction))


def _losses_of(model: TorchModel, few: Part) -> tuple[Any, list[float]]:
    """Return the loss of the samples together, and of each where they can be parted."""
    import torch  # noqa: PLC0415 - only with a module

    from stoilo.learn.kernels import torches  # noqa: PLC0415 - needs torch

    kernels: Any = torches  # untyped: they travel as source
    first = model.first()
    kwargs = {
        **copy.deepcopy(dict(model.constants())),
        "parameters": dict(first.parameters),
        "buffers": dict(first.buffers),
        "data": {"x": few.x, "y": few.y},
        "rows": None,
        "settings": {},
    }
    with take_turn(model.level), torch.random.fork_rng(devices=[]), torch.no_grad():
        shape: Any = kernels.restore(kwargs)
        x, y = kernels.choose(kwargs)
        output = kernels.apply(shape.eval(), x)
        whole = model.loss(output, y)
        if not isinstance(output, torch.Tensor) or len(output) != len(few):
            return whole, []
        rows = [slice(i, i + 1) for i in range(len(few))]
        return whole, [float(model.loss(output[i], kernels.take(y, i))) for i in rows]


def _check_reduction(whole: float, single: list[float], said: str) -> None:
    """Compare the samples' losses with their loss together; near zero all agree."""
    if len(single) < SAMPLES or not np.isfinite([whole, *single]).all():
        return
    total, room = sum(single), NEAR * sum(map(abs, single))
    fits = {"mean": total / len(single), "sum": total}
    right = [kind for kind, value in fits.items() if abs(whole - value) <= room]
    if right and said not in right:
        raise UsageError(
            "STO-T031",
            f"the loss is the samples' {right[0]}, and their {said} was said",
            hint=f"reduction={right[0]!r}, or let the loss return the {said}",
        )
