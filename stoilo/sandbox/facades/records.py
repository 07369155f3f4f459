"""`dataclasses` and `pprint`, which load `inspect`: apart, for the others' cold start."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pprint
from keyword import iskeyword
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.guards import check_fields
from stoilo.sandbox.language.ownership import (
    class_dict,
    is_own_class,
    may_be_field,
    narrow_match_args,
)
from stoilo.sandbox.language.rules import GuardError, is_variable_name

# `dataclasses`: the decorator rewrites the task's own classes only --------------------
#
# The library asks a class's ``__get__`` for defaults, so one `Field` could serve two classes
# and carry the name of the later one into the first: each class gets a copy. And it writes
# a docstring from the signature that `inspect` finds in the text of another, whose names
# are evaluated among all modules: text of the task is no signature.


_find_field = dataclasses._get_field  # type: ignore[attr-defined]  # noqa: SLF001 - takes defaults
_parse_signature = inspect._signature_fromstr  # type: ignore[attr-defined]  # noqa: SLF001 - evaluates


def _check_fields(target: type) -> None:
    """Refuse a class whose fields would let the library read or write what is not its own.

    The library compiles their names; classes that inherit from `target` were looked at
    when it had no fields yet.
    """
    if type.__subclasses__(target):
        raise GuardError("STO-G105", "dataclass() comes before subclasses of the class")
    annotations = class_dict(target).get("__annotations__", {})
    if type(annotations) is not dict:  # the library reads it twice
        raise GuardError("STO-G105", "annotations of a dataclass must be a plain dict")
    for name in annotations:
        spelled = type(name) is str and name.isidentifier() and not iskeyword(name)
        if not (spelled and is_variable_name(name) and may_be_field(target, name)):
            raise GuardError(
                "STO-G105", f"a dataclass cannot have the field {name!r:.64}"
            )


def dataclass(cls: Any = None, /, **options: Any) -> Any:
    def decorate(target: Any) -> Any:
        if not isinstance(target, type) or not is_own_class(target):
            raise GuardError("STO-G102", "dataclass() needs a class of the task itself")
        _check_fields(target)
        try:
            made: type = dataclasses.dataclass(target, **options)
            check_fields(made)
        finally:  # with slots there are two classes, and the library may give up half-way
            narrow_match_args(target)
        return made

    return decorate if cls is None else decorate(cls)


def _own_field(*details: Any) -> Any:
    # Return ``dataclasses._get_field(...)`` for one class alone
    return copy.copy(_find_field(*details))


def _checked_signature(cls: Any, obj: Any, text: str, *more: Any) -> Any:
    # ``inspect._signature_fromstr`` of what no task wrote
    if isinstance(obj, type) and is_own_class(obj):
        raise ValueError("no signature found in the text of a task")
    return _parse_signature(cls, obj, text, *more)


def _build_dataclasses(_level: Level) -> dict[str, object]:
    # Return the replacements
    dataclasses._get_field = _own_field  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    inspect._signature_fromstr = _checked_signature  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    return {"dataclass": dataclass}


# `pprint`: a printer that a task may extend without being shown addresses -------------
#
# The library's methods hand on a dictionary of the addresses of what is being printed. A
# task's own methods of a subclass get a `Ledger` instead, which only answers the library.


class Ledger:
    """What is being printed, for the library's eyes."""

    __slots__ = ("_known",)

    def __init__(self, known: tuple[int, ...] = ()) -> None:
        self._known = set(known)

    def __contains__(self, address: int) -> bool:
        return address in self._known

    def __setitem__(self, address: int, _one: int) -> None:
        self._known.add(address)

    def __delitem__(self, address: int) -> None:
        self._known.discard(address)

    def copy(self) -> Ledger:
        return Ledger(tuple(self._known))


def _hide(context: Any) -> Any:
    return context if type(context) is Ledger else Ledger()


class PrettyPrinter(pprint.PrettyPrinter):
    """``pprint.PrettyPrinter``."""

    def format(self, object: Any, context: Any, maxlevels: int, level: int) -> Any:  # noqa: A002 - the library's names
        return super().format(object, _hide(context), maxlevels, level)

    def _format(
        self,
        object: Any,  # noqa: A002
        stream: Any,
        indent: int,
        allowance: int,
        context: Any,
        level: int,
    ) -> None:
        super()._format(object, stream, indent, allowance, _hide(context), level)


PrettyPrinter.__module__ = "pprint"


FACADES: dict[str, object] = {
    "dataclasses": _build_dataclasses,
    "pprint": {"PrettyPrinter": PrettyPrinter},
}
