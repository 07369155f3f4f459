"""Attributes of arrays that are safe in part: that part is what a task gets."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from stoilo.sandbox.ownership import class_mro
from stoilo.sandbox.refusals import GuardError, refuse_read

__all__ = ["NARROWED", "read_narrowed"]


def _fields(dtype: Any) -> object:  # noqa: ANN401
    """Return ``dtype.fields`` of a copy: numpy's own mapping can be written through."""
    fields = dtype.fields
    return None if fields is None else MappingProxyType(dict(fields))


def _setflags(array: Any) -> Callable[..., None]:  # noqa: ANN401
    def setflags(
        write: object = None, align: object = None, uic: object = None
    ) -> None:
        """``ndarray.setflags(write=False)``."""
        if (write, align, uic) not in {(False, None, None), (None, None, None)}:
            message = "setflags() takes write=False only"
            raise GuardError("STO-G102", message, hint="copy the array to write to it")
        if write is not None:
            array.setflags(write=False)

    return setflags


_READERS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "fields": ("dtype", _fields),
    "setflags": ("ndarray", _setflags),
}
NARROWED = frozenset(_READERS)


def read_narrowed(value: object, name: str) -> object:
    """Return what a task gets for ``value.name``, one of `NARROWED`, or refuse."""
    kind, read = _READERS[name]
    bases = {(base.__module__, base.__name__) for base in class_mro(type(value))}
    if ("numpy", kind) not in bases:
        raise refuse_read(value, name)
    return read(value)
