"""Whose a class, function or name is, and which names a class lets others read by.

The task's *own* classes and functions are those whose module is the task's: no source can
set ``__module__``. Whether a class is own is never asked of its instances alone, since a
task may extend library classes.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from types import CodeType, FunctionType, ModuleType, resolve_bases
from typing import Any, NamedTuple, TypedDict

from stoilo.sandbox.language.rules import (
    GUARDED_ATTRIBUTES,
    TASK_FILENAME,
    TASK_MODULE,
    NameKind,
    attribute_kind,
    is_plain,
)

class_dict: Callable[[type], Any] = type.__dict__["__dict__"].__get__
class_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__

PLAIN_TYPES = frozenset(
    {object, int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set}
    | {frozenset}
)
_MEMBER_STATE = frozenset(
    {"_name_", "_value_"}
)  # documented: an enum's __new__ sets them
_WRAPPED = ("__func__", "fget", "fset", "fdel", "func")


def is_own_class(cls: type) -> bool:
    """Whether the task's source defined `cls`."""
    return bool(class_dict(cls).get("__module__") == TASK_MODULE)


def is_own_function(value: object) -> bool:
    """Whether the task's source defined the function `value`."""
    return type(value) is FunctionType and value.__module__ == TASK_MODULE


def is_task_code(member: object) -> bool:
    """Whether the source itself wrote what a class dictionary holds.

    ``dataclass`` and named tuples put functions into own classes that no guard has seen.
    """
    inner = getattr(member, "__func__", member)
    return type(inner) is FunctionType and inner.__code__.co_filename == TASK_FILENAME


def is_guarded_name(name: str) -> bool:
    """Whether a library class that defines `name` keeps it to itself."""
    private = name.startswith("_") and not name.startswith(("__", "_abc_"))
    return private or name in GUARDED_ATTRIBUTES


@functools.cache
def _spelled_names(cls: type) -> frozenset[str]:
    """Return the names in the dictionary of `cls`, and those that its methods spell."""
    used = {
        name
        for member in class_dict(cls).values()
        for function in functions_of(member)
        for name in _names_in(function.__code__)
    }
    return frozenset(used | set(class_dict(cls)))


def used_names(cls: type) -> frozenset[str]:
    """Return what `cls` defines or spells, but for the state that members are given."""
    return _spelled_names(cls) - _MEMBER_STATE.difference(class_dict(cls))


def guarded_names(cls: type) -> frozenset[str]:
    """Return the guarded names that the library class `cls` knows."""
    return frozenset(filter(is_guarded_name, _spelled_names(cls)))


@functools.cache
def kept_names(cls: type) -> frozenset[str]:
    """Return the guarded names that the library class `cls` keeps to itself.

    Those of its dictionary, and those that its methods use on an instance: what a
    library's ``__init__`` stores is as much its own as what its class holds.
    """
    return frozenset(filter(is_guarded_name, used_names(cls)))


def keeps(cls: type, name: str) -> bool:
    """Whether the library class `cls` keeps `name` to itself."""
    return is_guarded_name(name) and name in kept_names(cls)


def functions_of(member: object) -> list[FunctionType]:
    """Return the Python functions behind what a class dictionary holds."""
    parts = [member, *(getattr(member, part, None) for part in _WRAPPED)]
    return [inner for part in parts for inner in _unwrapped(part)]


def _unwrapped(part: object) -> Iterator[FunctionType]:
    """Yield a function and those that decorators put inside it."""
    while type(part) is FunctionType:
        yield part
        part = part.__dict__.get("__wrapped__")


def _names_in(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    spelled = {part for part in code.co_consts if isinstance(part, str)}
    return spelled.union(code.co_names, *map(_names_in, inner))


def is_own_method(cls: type, name: str) -> bool:
    """Whether a class of the task overrides `name` before any library class has it."""
    for base in class_mro(cls):
        if name in class_dict(base):
            return is_own_class(base)
    return False


def handed_out_classes(facades: tuple[ModuleType, ...]) -> frozenset[type]:
    """Return the classes, not its own, that a task can name."""
    handed_out = {
        value
        for facade in facades
        for value in vars(facade).values()
        if isinstance(value, type)
    }
    plain = set(PLAIN_TYPES) | {property, staticmethod, classmethod}
    exceptions = {
        value
        for value in vars(builtins).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    typed = set(resolve_bases((NamedTuple, TypedDict)))
    return frozenset(handed_out | plain | exceptions | typed)


# Names that a class lets others read by: fields of dataclasses, ``__match_args__``
#
# ``case C(x)`` reads the attribute that ``C.__match_args__`` names off whatever counts as an
# instance of C; ``asdict`` and ``replace`` read every field off the instance. Both are
# plain access by a name that the task chose, though no source can write either table: the
# library makes them from annotations. A metaclass such as ABCMeta counts foreign objects as
# instances (``register``, protocols), and a library base may keep a name to itself.


_FIELDS, _MATCH_ARGS = "__dataclass_fields__", "__match_args__"


def _inherited(cls: type, name: str) -> Iterable[object]:
    """Return the table `name` of the first class in the MRO that has it."""
    for base in class_mro(cls):
        if name in class_dict(base):
            found: Iterable[object] = class_dict(base)[name]
            return found
    return ()


def may_be_field(cls: type, name: object) -> bool:
    """Whether ``instance.name`` of an own class can give nothing but the task's own."""
    if type(name) is not str or attribute_kind(name) is NameKind.REFUSED:
        return False
    if attribute_kind(name) is NameKind.PLAIN:
        return True
    return not any(
        name in class_dict(base) or keeps(base, name)
        for base in class_mro(cls)
        if not is_own_class(base)
    )


def find_bad_field(cls: type) -> str:
    """Return a dataclass field of the own class `cls` that reads what is not its own.

    Empty if there is none.
    """
    for name in _inherited(cls, _FIELDS):
        if not may_be_field(cls, name):
            return str(name)
    return ""


def narrow_match_args(cls: type) -> None:
    """Cut the own class `cls`'s ``__match_args__`` before the first name out of reach.

    Only a class whose metaclass is ``type`` has no instances but its own; there a
    name such as ``format`` may stay.
    """
    names = tuple(_inherited(cls, _MATCH_ARGS))
    if type(cls) is type:
        kept = tuple(takewhile(lambda name: may_be_field(cls, name), names))
    else:
        kept = tuple(takewhile(is_plain, names))
    if kept != names:
        type.__setattr__(cls, _MATCH_ARGS, kept)
