"""The form of an answer, and whether two are the same, as a server's validators ask it.

The driver asks the same question again (`stoilo.learn.driver.acceptance`): what a server says
is not believed either. Both functions travel as source like any kernel, stay at the server,
run in its jail at the task's level, and never raise, whatever a volunteer has sent.
"""

from __future__ import annotations

import math

import numpy as np

from stoilo.learn.kernels.encoding import unpack

__all__ = ["are_alike", "find_fault", "make_check", "make_comparator"]

FIELDS = ("version", "samples", "loss_sum", "tensors", "buffers", "correct")
MOST_LOSS = 1e100  # sums of such still are numbers
NEAR = 1e-4  # relative distance of two honest gradients, at most (learn §0.7)
COSINE = 0.9999


def make_check(expected, told=None):
    """Return the validator ``value -> bool`` for answers of an expected form.

    Args:
        expected: see `find_fault`.
        told: how arrays are encoded, see `stoilo.learn.kernels.encoding.unpack`.
    """

    def has_form(value):
        try:
            return find_fault(arrive(value, expected["tensors"], told), expected) == ""
        except Exception:  # noqa: BLE001 - whatever it is, it is no answer
            return False

    return has_form


def make_comparator(forms, told):
    """Return the comparator of answers whose arrays are encoded without loss."""

    def are_alike_decoded(left, right):
        try:
            return are_alike(arrive(left, forms, told), arrive(right, forms, told))
        except Exception:  # noqa: BLE001 - as above
            return False

    return are_alike_decoded


def arrive(value, forms, told):
    """Return an answer with its arrays decoded."""
    if told is None:
        return value
    return {**value, "tensors": unpack(told, value["tensors"], forms)}


def find_fault(raw, expected):
    """Return what is wrong with an answer's form; empty when nothing is.

    Args:
        raw: decoded, otherwise unchecked.
        expected: see `stoilo.learn.driver.acceptance.Expectation.plain`.
    """
    if type(raw) is not dict or set(raw) != set(FIELDS):
        return "it is not an answer of a kernel"
    if not is_count(raw["version"], expected["version"]):
        return "it started from another version"
    if not is_count(raw["samples"], expected["samples"]):
        return "it does not cover the ordered samples"
    correct = raw["correct"]
    if type(correct) is not int or not -1 <= correct <= raw["samples"]:
        return "correct is no whole number in its range"
    return (
        find_loss_fault(raw["loss_sum"], expected["least_loss"])
        or find_array_fault(raw["tensors"], expected["tensors"], expected["lacking"])
        or find_array_fault(raw["buffers"], expected["buffers"], ())
    )


def is_count(value, ordered):
    """Return whether a value is the ordered whole number; any count where None was."""
    if type(value) is not int:
        return False
    return value == ordered if ordered is not None else 0 <= value < 1 << 62


def find_loss_fault(loss, least):
    """Return what is wrong with a sum of losses; `least` None: any number will do."""
    if type(loss) is not float or not math.isfinite(loss):
        return "its loss is not a finite number"
    if least is not None and loss < least:
        return "its loss is below what a loss can be"
    return "its loss is beyond every measure" if abs(loss) > MOST_LOSS else ""


def find_array_fault(arrays, forms, lacking):
    """Return what is wrong with arrays that should have these names and forms."""
    if type(arrays) is not dict:
        return "its arrays have no names"
    if any(type(name) is not str or name not in forms for name in arrays):
        return "the names of its arrays are not the model's"
    if any(name not in arrays and name not in lacking for name in forms):
        return "the names of its arrays are not the model's"
    faults = [find_form_fault(arrays[name], *forms[name]) for name in arrays]
    return next(
        (f"{n} {fault}" for n, fault in zip(arrays, faults, strict=True) if fault), ""
    )


def find_form_fault(array, dtype, shape):
    """Return what is wrong with one array."""
    if type(array) is not np.ndarray:
        return "is not an array"
    if str(array.dtype) != dtype or array.shape != tuple(shape):
        return "is of another type or shape than the model's"
    if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
        return "holds numbers that are not finite"
    return ""


def are_alike(left, right):
    """Return whether two answers to one order are the same but for rounding.

    Gradients of different processors differ in single entries by more than any relative
    bound allows, so the whole of them is compared: by distance and by angle.
    """
    try:
        return (
            left["version"] == right["version"]
            and left["samples"] == right["samples"]
            and abs(left["correct"] - right["correct"]) <= 1 + left["samples"] // 100
            and are_near_numbers(left["loss_sum"], right["loss_sum"])
            and are_near(left["tensors"], right["tensors"])
            and set(left["buffers"]) == set(right["buffers"])
            and all(
                are_near({name: left["buffers"][name]}, {name: right["buffers"][name]})
                for name in left["buffers"]
            )
        )
    except Exception:  # noqa: BLE001 - as above
        return False


def are_near_numbers(one, other):
    """Return whether two finite numbers are the same but for rounding."""
    return abs(one - other) <= NEAR * max(abs(one), abs(other)) + 1e-12


def are_near(one, other):
    """Return whether two sets of arrays are, as one vector each; counters must be equal."""
    if set(one) != set(other):
        return False
    products = [0.0, 0.0, 0.0, 0.0]  # one², other², one·other, (one - other)²
    for name in one:
        if not np.issubdtype(one[name].dtype, np.floating):
            if not np.array_equal(one[name], other[name]):
                return False
            continue
        a = one[name].astype(np.float64).ravel()
        b = other[name].astype(np.float64).ravel()
        gap = a - b
        found = (np.dot(a, a), np.dot(b, b), np.dot(a, b), np.dot(gap, gap))
        products = [sum(pair) for pair in zip(products, found, strict=True)]
    squared, other_squared, along, apart = [float(product) for product in products]
    if not math.isfinite(squared + other_squared + apart):
        return False
    if apart > NEAR**2 * max(squared, other_squared):
        return False
    return along >= COSINE * math.sqrt(squared) * math.sqrt(other_squared)
