"""Which training a checkpoint is of: method, settings, optimiser, model and data, in words.

A folder is taken up only by the training that wrote it. What may change in between is the
researcher's source (a bug repaired), the first weights, and how the run is driven.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np

from stoilo.client.capture.stored import StoredValue
from stoilo.core.errors import UsageError
from stoilo.learn.data import Part
from stoilo.learn.packs import digest_of
from stoilo.learn.tensors import Tensors
from stoilo.learn.work import Method, Plain, Snapshot

__all__ = ["check_identity", "describe", "identify"]

_SHOWN = 3
"""So many differences are named."""


def identify(
    method: Method, first: Snapshot, parts: Sequence[Part]
) -> dict[str, Plain]:
    """Return what tells this training from others; reads all data once."""
    return {
        "method": type(method).__name__,
        "settings": describe(getattr(method, "settings", None)),
        "optimizer": describe(getattr(method, "optimizer", None)),
        "parameters": _sum_up(first.parameters),
        "buffers": _sum_up(first.buffers),
        "data": _name_data(parts),
    }


def describe(value: object) -> Plain:
    """Return constants and settings as plain data; functions and arrays by name only."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Path):
        return str(value) if isinstance(value, Path) else float(value)
    if isinstance(value, Mapping):
        return {str(name): describe(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [describe(one) for one in value]
    if isinstance(value, np.generic | np.ndarray):
        return digest_of(np.asarray(value))
    kind = type(value).__qualname__
    is_named = callable(value) and not is_dataclass(value)
    return getattr(value, "__qualname__", kind) if is_named else _public(kind, value)


def _public(kind: str, value: object) -> dict[str, Plain]:
    """Return the fields of a dataclass, or the public attributes of another object."""
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
    else:
        names = [name for name in getattr(value, "__dict__", ()) if name[0] != "_"]
    return {"": kind, **{name: describe(getattr(value, name)) for name in names}}


def _sum_up(tensors: Tensors) -> Plain:
    """Return names and forms of arrays in one line of bounded length."""
    forms = "\0".join(f"{n} {a.dtype} {a.shape}" for n, a in sorted(tensors.items()))
    digest = hashlib.sha256(forms.encode()).hexdigest()[:16]
    return f"{len(tensors)} arrays, {sum(a.size for a in tensors.values())} numbers, {digest}"


def _name_data(parts: Sequence[Part]) -> Plain:
    total = hashlib.sha256()
    for part in parts:
        stored, _ = StoredValue.of({"x": part.x, "y": part.y})
        total.update(stored.digest.encode())
    size = sum(map(len, parts))
    return f"{len(parts)} data parts, {size} samples, {total.hexdigest()[:16]}"


def check_identity(saved: Plain, ours: Plain) -> None:
    """Refuse a checkpoint of another training.

    Raises:
        UsageError: ``STO-T012`` naming the first differences.
    """
    found = list(_differ("", saved, ours))
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise UsageError(
            "STO-T012",
            f"the checkpoint is of another training: {'; '.join(found[:_SHOWN])}{more}",
            hint="train as before, or give another folder",
        )


def _differ(name: str, one: Plain, other: Plain) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            below = f"{name}.{key}" if name and key else name or key
            yield from _differ(below, one.get(key), other.get(key))
    elif one != other:
        yield f"{name} was {_cut(one)}, is {_cut(other)}"


def _cut(value: Plain) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004 - one line
