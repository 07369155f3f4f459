"""bytearray, memoryview and array.array: no task code runs while C holds their pointer.

CPython's methods take the address of the bytes and then convert an argument: ``ba[i] = v``
calls ``v.__index__``, ``ba.hex(sep)`` asks ``sep`` for its length, ``ba % v`` for its text
(gh-91153 and kin, seen in 3.11.2 to 3.13.0). What resizes the object there leaves a
pointer to freed memory, which C then reads or writes. So arguments become exact numbers,
texts and lists *before* C sees them.

Only a class that defines a conversion can misuse a store or a search. So these are
CPython's own, at full speed, until such a class is about to be built (`seal_stores`).
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from stoilo.sandbox.facades.receivers import bind_method
from stoilo.sandbox.immutable_types import replace_members
from stoilo.sandbox.ownership import class_dict, class_mro

__all__ = ["converts", "exact_index", "seal_stores", "seal_text"]

_Method = Callable[..., Any]
_CONVERSIONS = frozenset({"__index__", "__float__", "__int__", "__trunc__"})
_sealed: set[str] = set()
_SEARCHES = ("find", "rfind", "index", "rindex", "count", "startswith", "endswith")


def converts(body: Any, bases: tuple[object, ...]) -> bool:  # noqa: ANN401 - the compiler's
    """Whether instances of a class can run Python code when C asks them for a number.

    Asked before the class exists: enums have instances while they are being built.

    Args:
        body: the function that the class statement compiled to; it names what it binds.
        bases: of the class, in the order of the statement.
    """
    if not _CONVERSIONS.isdisjoint(body.__code__.co_names):
        return True
    classes = (
        part for cls in bases if isinstance(cls, type) for part in class_mro(cls)
    )
    return any(
        type(class_dict(cls).get(name)) is FunctionType
        for cls in classes
        for name in _CONVERSIONS
    )


# Arguments in which nothing is left to convert


def exact_index(value: Any) -> Any:  # noqa: ANN401
    """Return `value`, where it stands for an integer or a slice, as exactly that."""
    kind = type(value)
    if kind is int or kind is bytes or value is None:
        return value
    if kind is slice:
        return slice(*map(exact_index, (value.start, value.stop, value.step)))
    if isinstance(value, int) or hasattr(kind, "__index__"):
        return int.__index__(operator.index(value))
    return value


def exact_text(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.__getitem__(value, slice(None))
    return exact_index(value)


def exact_float(value: Any) -> Any:  # noqa: ANN401
    kind = type(value)
    if kind is float or kind is int or isinstance(value, str | bytes | bytearray):
        return value
    if hasattr(kind, "__float__") or hasattr(kind, "__index__"):
        return float(value)
    return value


def exact_item(array: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    """Return what makes an item for `array` exact."""
    return exact_float if array.typecode in {"f", "d"} else exact_index


# Methods


def _exact(original: _Method, change: Callable[[Any], Any]) -> _Method:
    """Return `original` that gets of each argument what `change` makes of it."""

    @functools.wraps(original, updated=())
    def method(self: Any, /, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        named = {name: change(value) for name, value in options.items()}
        return original(self, *map(change, arguments), **named)

    return method


@functools.cache
def _text_members() -> dict[type, dict[str, _Method]]:
    own = bytearray.__dict__
    original_join, original_mod = own["join"], own["__mod__"]

    @functools.wraps(original_join, updated=())
    def join(self: Any, parts: Any, /) -> Any:  # noqa: ANN401
        return original_join(self, list(parts))

    @functools.wraps(original_mod, updated=())
    def mod(self: Any, values: Any, /) -> Any:  # noqa: ANN401
        return original_mod(bytearray(self), values)  # nobody else can resize this one

    seen = memoryview.__dict__["hex"]
    return {
        bytearray: {
            "hex": _exact(own["hex"], exact_text),
            "join": join,
            "__mod__": mod,
        },
        memoryview: {"hex": _exact(seen, exact_text)},
    }


@functools.cache
def _bytearray_members() -> dict[str, _Method]:
    own = bytearray.__dict__
    later = (name for name in ("resize", "take_bytes") if name in own)  # 3.14, 3.15
    names = (*_SEARCHES, "__contains__", "__delitem__", *later)
    store = own["__setitem__"]

    @functools.wraps(store, updated=())
    def setitem(self: Any, key: Any, value: Any, /) -> None:  # noqa: ANN401
        if type(key) is not int:
            key = exact_index(key)
        if type(value) is not int:
            value = exact_index(value)
        store(self, key, value)

    members = {name: _exact(own[name], exact_index) for name in names}
    return members | {"__setitem__": setitem}


@functools.cache
def _array_members(cls: Any) -> dict[str, _Method]:  # noqa: ANN401 - array.array
    own = cls.__dict__
    store, append, insert = own["__setitem__"], own["append"], own["insert"]
    extend, fromlist = own["extend"], own["fromlist"]

    @functools.wraps(store, updated=())
    def setitem(self: Any, key: Any, value: Any, /) -> None:  # noqa: ANN401
        if type(key) is not int:
            key = exact_index(key)
        if type(value) is not int and type(value) is not float:
            value = exact_item(self)(value)
        store(self, key, value)

    @functools.wraps(append, updated=())
    def append_item(self: Any, value: Any, /) -> None:  # noqa: ANN401
        append(self, exact_item(self)(value))

    @functools.wraps(insert, updated=())
    def insert_item(self: Any, place: Any, value: Any, /) -> None:  # noqa: ANN401
        insert(self, exact_index(place), exact_item(self)(value))

    @functools.wraps(extend, updated=())
    def extend_items(self: Any, values: Any, /) -> None:  # noqa: ANN401
        plain = isinstance(values, cls)
        extend(self, values if plain else map(exact_item(self), values))

    @functools.wraps(fromlist, updated=())
    def from_list(self: Any, values: Any, /) -> None:  # noqa: ANN401
        listed = isinstance(values, list)
        fromlist(self, list(map(exact_item(self), values)) if listed else values)

    members: dict[str, Any] = {
        "__setitem__": setitem,
        "append": append_item,
        "insert": insert_item,
        "extend": extend_items,
        "fromlist": from_list,
    }
    return {name: bind_method(cls, name, made) for name, made in members.items()}


def seal_text() -> None:
    """Exchange what asks arguments for text or length; in the zygote.

    Raises:
        InternalError: ``STO-G130`` this interpreter's types cannot be changed.
    """
    for cls, members in _text_members().items():
        replace_members(cls, members)


def seal_stores() -> None:
    """Exchange what asks arguments for numbers; before a class that converts is built.

    May be cut short anywhere, by a task at its limit of memory or recursion: then that
    class is not built, and the next one seals all of it again.

    Raises:
        InternalError: ``STO-G130`` this interpreter's types cannot be changed.
    """
    if _sealed:
        return
    replace_members(bytearray, _bytearray_members())
    if arrays := sys.modules.get("array"):  # what is not loaded by now never is
        replace_members(arrays.array, _array_members(arrays.array))
    _sealed.add("stores")
