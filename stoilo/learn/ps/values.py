"""What a parameter server keeps: arrays, numbers and counts by name; and their bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.tensors import Array

__all__ = ["Encoded", "Value", "decode_value", "encode_value"]

Value: TypeAlias = Array | int | float | dict[str, int | float]
"""An array of numbers, a number, or numbers by name (counts)."""

MOST_BYTES = 252 << 20
"""Of a value: with its name and marks it fits a frame, in which it is read."""
_KINDS = "biuf"  # numpy's letters: truth values, whole and real numbers


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as it lies in a shard's file.

    Attributes:
        form: numpy's name of the type and the shape as JSON; ``null`` for plain data.
        body: little-endian bytes in C order, or JSON.
    """

    form: str
    body: bytes


def encode_value(value: Value) -> Encoded:
    """Return the bytes of `value`, or raise ``STO-T068``: it is none, or too large."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise _no_value(f"an array of {value.dtype}")
        _check_size(value.nbytes)
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        form = json.dumps([value.dtype.name, list(value.shape)])
        return Encoded(form, little.tobytes())
    if not _is_plain(value):
        raise _no_value(type(value).__name__)
    body = json.dumps(value).encode()
    _check_size(len(body))
    return Encoded("null", body)


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise _no_value(f"{size} bytes under one name")


def decode_value(encoded: Encoded) -> Value:
    """Return the value, or raise ``STO-T069`` for bytes that are none."""
    try:
        form = json.loads(encoded.form)
        if form is None:
            plain: Value = json.loads(encoded.body)
            if _is_plain(plain):
                return plain
        elif np.dtype(form[0]).kind in _KINDS:
            kind = np.dtype(form[0]).newbyteorder("<")
            array = np.frombuffer(encoded.body, kind).reshape(form[1])
            return array.astype(kind.newbyteorder("="))
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise _damaged() from error
    raise _damaged()


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_number(v) for k, v in value.items())
    return _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _no_value(what: str) -> UsageError:
    return UsageError("STO-T068", f"a parameter server does not keep {what}")


def _damaged() -> TrustError:
    return TrustError("STO-T069", "a shard's file holds a value that is none")
