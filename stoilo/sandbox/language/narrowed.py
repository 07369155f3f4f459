"""Library attributes and methods that are safe in part: that part is what a task gets."""

from __future__ import annotations

import string
from _string import formatter_field_name_split  # type: ignore[import-not-found]  # CPython's own C module
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from stoilo.core.errors import PolicyRefusal
from stoilo.sandbox.language.ownership import class_mro
from stoilo.sandbox.language.rules import (
    GuardError,
    NameKind,
    attribute_kind,
    refuse_read,
)


def _fields(dtype: Any) -> object:
    """Return ``dtype.fields`` of a copy: numpy's own mapping can be written through."""
    fields = dtype.fields
    return None if fields is None else MappingProxyType(dict(fields))


def _setflags(array: Any) -> Callable[..., None]:
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


# ``str.format`` whose fields obey the attribute rule (CVE-2023-41039 and kin) ---------


_parse = string.Formatter().parse
_MAX_NESTING = 2  # CPython's own limit


def check_template(template: str, depth: int = _MAX_NESTING) -> None:
    """Raise ``STO-G103`` when a field of `template` reads an attribute not plain."""
    for _, field, specification, _ in _parse(template):
        if field is None:
            continue
        for is_attribute, name in formatter_field_name_split(field)[1]:
            if is_attribute and attribute_kind(name) is not NameKind.PLAIN:
                raise PolicyRefusal(
                    "STO-G103",
                    f"a format field cannot read the attribute {name[:64]!r}",
                )
        if specification and depth > 0:
            check_template(specification, depth - 1)


def guarded_format(value: Any, name: str) -> Callable[..., str]:
    """Return ``value.format`` or ``value.format_map`` behind `check_template`.

    `value` is a string, or a string class whose unbound method is asked for.
    """
    method = getattr(value, name)
    if not isinstance(value, type):
        template = str.__str__(value)

        def bound(*args: Any, **kwargs: Any) -> str:
            check_template(template)
            return str(method(*args, **kwargs))

        return bound

    def unbound(text: str, *args: Any, **kwargs: Any) -> str:
        check_template(str.__str__(text))
        return str(method(text, *args, **kwargs))

    return unbound
