"""What a volunteer's answer must be before a single number of it is used (hostile input).

Known version, exact names, types and shapes, finite entries, the ordered number of samples,
a loss above its least value. Only then it is a `Reply`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoilo.core.errors import TrustError
from stoilo.learn.tensors import Array, Form, Tensors
from stoilo.learn.work import Reply

__all__ = ["Expectation", "check_reply", "tensors_expected"]

_FIELDS = frozenset(
    {"version", "samples", "loss_sum", "tensors", "buffers", "correct", "numbers"}
)
MOST_NUMBERS = 64
MOST_LOSS = 1e100  # sums of such still are numbers


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the answer to one order must look like.

    Attributes:
        version: of the snapshot that the order named.
        samples: how many samples it covers.
        tensors: forms of the arrays that the kernel returns.
        buffers: forms of the model's buffers.
        least_loss: least sum of losses that can be, where the loss has a lower bound of 0:
            0; else minus infinity.
        may_lack: whether single arrays may be absent (parameters without a gradient).
    """

    version: int
    samples: int
    tensors: Mapping[str, Form]
    buffers: Mapping[str, Form]
    least_loss: float = -math.inf
    may_lack: bool = False


def check_reply(raw: object, expected: Expectation) -> Reply:
    """Return the reply that `raw` (decoded, otherwise unchecked) holds.

    Raises:
        TrustError: ``STO-T010`` naming the first thing that is not as expected.
    """
    if not isinstance(raw, dict) or set(raw) != _FIELDS:
        raise _refused("it is not an answer of a kernel")
    _check_counts(raw, expected)
    return Reply(
        version=expected.version,
        samples=expected.samples,
        loss_sum=_loss(raw["loss_sum"], expected),
        tensors=_arrays(raw["tensors"], expected.tensors, lacking=expected.may_lack),
        buffers=_arrays(raw["buffers"], expected.buffers, lacking=False),
        correct=_whole(raw["correct"], "correct", -1, expected.samples),
        numbers=_numbers(raw["numbers"]),
    )


def _check_counts(raw: dict[Any, Any], expected: Expectation) -> None:
    if _whole(raw["version"], "version", 0, 1 << 62) != expected.version:
        raise _refused("it started from another version")
    if _whole(raw["samples"], "samples", 0, 1 << 62) != expected.samples:
        raise _refused(f"it does not cover the {expected.samples} ordered samples")


def _loss(value: object, expected: Expectation) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise _refused("its loss is not a finite number")
    if value < expected.least_loss:
        raise _refused("its loss is below what a loss can be")
    if abs(value) > MOST_LOSS:
        raise _refused("its loss is beyond every measure")
    return value


def _arrays(
    value: object, forms: Mapping[str, Form], *, lacking: bool
) -> dict[str, Array]:
    if not isinstance(value, dict):
        raise _refused("its arrays have no names")
    strange = [name for name in value if name not in forms]
    missing = [name for name in forms if name not in value]
    if strange or (missing and not lacking) or (forms and not value):
        raise _refused("the names of its arrays are not the model's")
    return {
        name: _array(name, value[name], form)
        if name in value
        else np.zeros(form.shape, form.dtype)
        for name, form in forms.items()
    }


def _array(name: str, value: object, form: Form) -> Array:
    if type(value) is not np.ndarray:
        raise _refused(f"{name} is not an array")
    if str(value.dtype) != form.dtype or value.shape != form.shape:
        raise _refused(f"{name} is {value.dtype}{value.shape}, not as the model's")
    if np.issubdtype(value.dtype, np.inexact) and not np.isfinite(value).all():
        raise _refused(f"{name} holds numbers that are not finite")
    return value


def _whole(value: object, name: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _refused(f"{name} is no whole number in its range")
    return value


def _numbers(value: object) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > MOST_NUMBERS:
        raise _refused("its further numbers are not as agreed")
    for name, number in value.items():
        known = type(name) is str and type(number) is float
        if not known or not math.isfinite(number):
            raise _refused("its further numbers are not as agreed")
    return dict(value)


def _refused(what: str) -> TrustError:
    return TrustError("STO-T010", f"a volunteer's answer is not used: {what}")


def tensors_expected(kernel: str, parameters: Tensors) -> Mapping[str, Form]:
    """Return the forms of the arrays that `kernel` returns."""
    if kernel == "evaluate":
        return {}
    return {n: Form(str(a.dtype), a.shape) for n, a in parameters.items()}
