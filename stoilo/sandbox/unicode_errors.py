"""Unicode errors: their C code believes where they say that the fault is.

``str(error)`` reads ``error.object`` at ``error.start`` without looking whether that is
below zero, so whoever chooses both reads the process's memory byte by byte. Codecs set
them rightly; a task that makes such an error states places inside the text, once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stoilo.sandbox.buffers import exact_index
from stoilo.sandbox.immutable_types import replace_members
from stoilo.sandbox.refusals import GuardError, refuse_write

__all__ = ["seal_unicode_errors"]

_ERRORS = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)
_FIELDS = ("start", "end", "object")


class FixedField:
    """A field of C's that is read and never assigned."""

    __slots__ = ("_name", "_read")

    def __init__(self, name: str, read: Callable[..., object]) -> None:
        self._name = name
        self._read = read

    def __get__(self, error: object, owner: type | None = None) -> object:
        return self if error is None else self._read(error, owner)

    def __set__(self, error: object, value: object) -> None:
        raise refuse_write(error, self._name)

    def __delete__(self, error: object) -> None:
        raise refuse_write(error, self._name)


def _checked(cls: type) -> Callable[..., None]:
    """Return an ``__init__`` of `cls` that is called once, with places in the text."""
    initialise: Any = cls.__dict__["__init__"]
    read: Any = cls.__dict__["object"].__get__
    places = slice(1, 3) if cls is UnicodeTranslateError else slice(2, 4)

    @functools.wraps(initialise, updated=())
    def begin(self: Any, /, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        plain = tuple(map(exact_index, arguments))
        if any(type(place) is int and place < 0 for place in plain[places]):
            raise GuardError(
                "STO-G109", f"a {cls.__name__} begins and ends in its text"
            )
        if read(self) is not None:
            raise refuse_write(self, "__init__")
        initialise(self, *plain, **options)

    return begin


@functools.cache
def _members() -> dict[type, dict[str, object]]:
    return {
        cls: {name: FixedField(name, cls.__dict__[name].__get__) for name in _FIELDS}
        | {"__init__": _checked(cls)}
        for cls in _ERRORS
    }


def seal_unicode_errors() -> None:
    """Exchange constructor and fields of the three classes; in the zygote.

    Raises:
        InternalError: ``STO-G130`` this interpreter's types cannot be changed.
    """
    for cls, members in _members().items():
        replace_members(cls, members)
