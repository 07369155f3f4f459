"""A look at an order before anybody is trusted with it: a few samples, computed here.

It tells how large an honest answer can be, so that the very first answers of a run are
bounded like later ones (`robust.clip` compares with a median, and at the beginning there is
none), how long a sample takes, and whether model and loss give what training can use.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import (
    ArrayModel,
    Model,
    TorchModel,
    make_arguments,
    torch_lock,
)
from stoilo.learn.core.orders import Order, Reply
from stoilo.learn.core.states import Plain
from stoilo.learn.core.tensors import Tensors, add, forms_of, safe_norm
from stoilo.learn.driver.transport import receive
from stoilo.learn.kernels import checks
from stoilo.learn.methods import robust

LOOKS = 4  # how many small batches are looked at
WIDTH = 2  # samples of each: one alone is no batch for BatchNorm
MEASURED = 32  # samples of the batch that is timed


@dataclass(frozen=True, slots=True)
class Look:
    """What answers computed here were like."""

    # About the largest norm of an honest answer, as `robust.measure` has it; None: unknown
    norm: float | None = None
    samples: int = 1  # that its noise comes from, likewise
    # Names of parameters that had no gradient in one of them at least
    lacking: frozenset[str] = frozenset()
    # Buffer → about the largest norm of its change
    moves: Mapping[str, float] = field(default_factory=dict)


def look_at(model: Model, order: Order, part: Part) -> Look:
    """Return what honest answers to orders like `order` are like.

    Generous: small batches' gradients are longer than large ones', and local steps are
    counted as if all went the same way. An empty look where nothing can be said, also
    when the researcher's function fails: volunteers will report that.
    """
    known: Mapping[str, Look] | None = getattr(model, "looks", None)
    if known is not None:  # a model of which nothing can be computed here
        return known.get(order.kernel, Look())
    rows = _choose(order, part)
    # Over the whole order: the first samples may all be of one class.
    looks = np.array_split(rows, min(LOOKS, max(1, len(rows) // WIDTH)))
    try:
        found = [_look(model, order, part, look[:WIDTH]) for look in looks]
    except Exception:  # noqa: BLE001 - the researcher's own code: volunteers report it
        return Look()
    largest = max(look.norm or 0.0 for look in found)
    norm, samples = robust.measure(largest, order.samples, count_steps(order))
    return Look(
        norm if math.isfinite(norm) and norm > 0.0 else None,
        samples,
        frozenset().union(*(look.lacking for look in found)),
        {name: max(look.moves[name] for look in found) for name in found[0].moves},
    )


def runs_here(model: Model, order: Order, part: Part) -> bool:
    """Return whether the whole order can be computed here: a volunteer says it cannot."""
    rows = tuple(_choose(order, part).tolist())
    try:
        _compute(model, replace(order, rows=rows), part)
    except Exception:  # noqa: BLE001 - the researcher's own code: so the volunteer is right
        return False
    return True


OFF = (
    0.3  # of an honest answer's length: two machines differ by less, and a push by more
)
# Of a sum of losses, and by the sample: as much is rounding
_LOSS_OFF, _ROUNDING = 0.05, 1e-5


@dataclass(frozen=True, slots=True)
class Lie:
    """By what an answer differs from the same order computed here."""

    what: str  # in a few words
    # The difference, of length 1; empty where only numbers are wrong
    way: Tensors = field(default_factory=dict)


def find_lie(model: Model, order: Order, part: Part, reply: Reply) -> Lie | None:
    """Return how an accepted answer differs from the whole order computed here.

    None when it is near, or when the order cannot be computed here. Near and not equal,
    because processors round differently and many local steps make more of it.
    """
    rows = tuple(_choose(order, part).tolist())
    try:
        raw: Any = _compute(model, replace(order, rows=rows), part)
    except Exception:  # noqa: BLE001 - the researcher's own code: volunteers report it
        return None
    here = float(raw["loss_sum"])
    room = _LOSS_OFF * abs(here) + 1e-3 * order.samples
    if abs(reply.loss_sum - here) > room:
        return Lie(f"its sum of losses is {reply.loss_sum:.4g}, here {here:.4g}")
    if abs(reply.correct - int(raw["correct"])) > _LOSS_OFF * order.samples + 1:
        return Lie(f"it says {reply.correct} are right, here {raw['correct']}")
    if set(reply.tensors) != set(raw["tensors"]):
        return Lie("it has other arrays than here")
    way = add(reply.tensors, raw["tensors"], -1.0)
    base = order.snapshot.parameters if order.gives_parameters else {}
    usual = safe_norm(add(raw["tensors"], base, -1.0) if base else raw["tensors"])
    size, rounding = safe_norm(way), safe_norm(base) + order.samples * (not base)
    if size <= OFF * usual + _ROUNDING * rounding:
        return None
    unit = {name: array / size for name, array in way.items()}
    return Lie(f"it is off by {size / max(usual, 1e-300):.2g} of its length here", unit)


def find_own_fault(
    model: Model, order: Order, part: Part, expected: Mapping[str, object]
) -> str:
    """Return why an answer that is computed here could not be used, and where in the data.

    Empty when it could, or when nothing can be computed here. `expected` is the form of
    the answer, see `stoilo.learn.driver.acceptance.Expectation.plain`.
    """
    rows, find_fault = _choose(order, part), cast("Any", checks.find_fault)
    try:
        raw: Any = _compute(model, replace(order, rows=tuple(rows.tolist())), part)
        fault = str(find_fault(raw, expected))
        if not fault or math.isfinite(raw["loss_sum"]):
            return fault and f"answers to {order.key} cannot be used: {fault}"
        rows = _narrow(model, order, part, rows)
    except TrustError as error:  # one that does not even arrive
        return error.message
    except Exception:  # noqa: BLE001 - the researcher's own code: volunteers report it
        return ""
    which = f"sample {rows[0]}" if len(rows) == 1 else f"{len(rows)} samples"
    return f"the loss is {raw['loss_sum']} at {which} of data part {order.part}"


def _narrow(model: Model, order: Order, part: Part, rows: np.ndarray) -> np.ndarray:
    """Return the fewest of `rows`, found by halving, whose loss is not finite."""
    for half in np.array_split(rows, 2) if len(rows) > 1 else ():
        loss: Any = _compute(model, _shrink(order, half), part)["loss_sum"]
        if not math.isfinite(loss):
            return _narrow(model, order, part, half)
    return rows


def measure_seconds(model: Model, order: Order, part: Part) -> float:
    """Return how long one sample of `order` takes on this computer, s.

    Raises:
        Exception: what the researcher's function raises.
    """
    rows = _choose(order, part)[:MEASURED]
    small = _shrink(order, rows)
    _compute(model, small, part)  # the first call also loads and allocates
    began = time.perf_counter()
    _compute(model, small, part)
    return (time.perf_counter() - began) / len(rows)


def _choose(order: Order, part: Part) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rows = range(len(part)) if order.rows is None else order.rows
    return np.asarray(rows, np.int64)


def _look(model: Model, order: Order, part: Part, rows: np.ndarray) -> Look:
    raw = _compute(model, _shrink(order, rows), part)
    tensors, base = raw["tensors"], order.arrays
    lacking = frozenset(base).difference(tensors) if _gives_gradients(order) else ()
    return Look(
        _norm(order, tensors, len(rows)),
        len(rows),
        frozenset(lacking),
        _moves(order, raw["buffers"]),
    )


def _norm(order: Order, tensors: Tensors, samples: int) -> float:
    """Return the whole order's norm, by that of a few of its samples."""
    if order.kernel != "local_steps":
        return safe_norm(tensors) / samples * order.samples
    base = order.snapshot.parameters
    moved = add(tensors, base, -1.0) if order.gives_parameters else tensors
    return safe_norm(moved) * _straight_steps(order.settings)


def _moves(order: Order, buffers: Tensors) -> dict[str, float]:
    steps = order.settings.get("steps", 1)
    times = float(steps) if isinstance(steps, int) else 1.0
    base = order.snapshot.buffers
    return {
        name: times * safe_norm({name: array.astype(np.float64) - base[name]})
        for name, array in buffers.items()
        if np.issubdtype(array.dtype, np.floating)
    }


def _gives_gradients(order: Order) -> bool:
    return order.kernel == "gradient" or order.settings.get("give") == "sum"


def count_steps(order: Order) -> int:
    """Return how many local steps an order asks for; 0: it is no such order."""
    steps = order.settings.get("steps", 1)
    is_local = order.kernel == "local_steps"
    return int(steps) if is_local and isinstance(steps, int) else 0


def _straight_steps(settings: Mapping[str, Plain]) -> float:
    """Return for how many steps of a start without momentum the order's steps count."""
    steps, momentum = settings.get("steps", 1), settings.get("momentum", 0.0)
    if not isinstance(steps, int) or not isinstance(momentum, (int, float)):
        return 1.0
    held = settings.get("give") == "parameters" and 0.0 <= momentum < 1.0
    return steps / (1.0 - momentum) if held else float(steps)


def _shrink(order: Order, rows: np.ndarray) -> Order:
    settings = {**order.settings}
    if order.kernel == "local_steps":
        settings |= {"steps": 1, "batch": 0}
    return replace(
        order, rows=tuple(rows.tolist()), samples=len(rows), settings=settings
    )


def _compute(model: Model, order: Order, part: Part) -> dict[str, Tensors]:
    """Return what would arrive of a volunteer; the caller's objects stay as they are."""
    rows = list(order.rows or ())  # only these are copied: a part may be large
    small = part.take(rows)
    given = replace(order.snapshot, parameters=order.arrays)
    kwargs = make_arguments(model, given, small, order.settings)
    with torch_lock(model.level):
        answer = model.kernel(order.kernel)(kwargs)
    arrived = receive(answer, order, forms_of(order.arrays))
    return cast("dict[str, Tensors]", arrived)


SAMPLES = 2
# Of the losses' size: what a mean may differ from the mean of its samples' losses.
NEAR = 1e-3


def rehearse(model: Model, part: Part) -> None:
    """Refuse a model or loss that gives what training cannot use.

    Raises:
        UsageError: ``STO-T001``: the loss is not one number, or its reduction is another
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
            "STO-T001",
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
            "STO-T001",
            f"the loss of {len(few)} samples is {shape}, not one number",
            hint="let it return the mean or the sum, as a tensor",
        )
    _check_reduction(float(whole), single, str(model.reduction))


def _losses_of(model: TorchModel, few: Part) -> tuple[Any, list[float]]:
    """Return the loss of the samples together, and of each where they can be parted."""
    import torch  # noqa: PLC0415 - only with a module

    from stoilo.learn.kernels import torch_models  # noqa: PLC0415 - needs torch

    kernels: Any = torch_models  # untyped: they travel as source
    kwargs = make_arguments(model, model.first(), few, {})
    with torch_lock(model.level), torch.random.fork_rng(devices=[]), torch.no_grad():
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
            "STO-T001",
            f"the loss is the samples' {right[0]}, and their {said} was said",
            hint=f"reduction={right[0]!r}, or let the loss return the {said}",
        )
