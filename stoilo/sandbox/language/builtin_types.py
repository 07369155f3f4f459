"""Methods of CPython's own types that believe a task, exchanged before its code runs.

Some methods written in C keep a bare pointer while they call back into a task (those of
bytearray, memoryview and array.array), or believe numbers that a task chose (Unicode errors).
A stand-in under the type's *name* would leave the type itself in reach: slices, exceptions
that codecs raise and ``__exit__``'s first argument are of it. So the member is exchanged in
the type: on every road, for every instance.

CPython refuses that for its own types by one flag. It is taken off for the exchange, here
and nowhere else, and what was written is read back.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from stoilo.sandbox.language.ownership import class_dict, class_mro
from stoilo.sandbox.language.receivers import bind_method, replace_members
from stoilo.sandbox.language.rules import GuardError, refuse_write

# bytearray, memoryview and array.array: no task code runs while C holds their pointer
#
# CPython's methods take the address of the bytes and then convert an argument: ``ba[i] = v``
# calls ``v.__index__``, ``ba.hex(sep)`` asks ``sep`` for its length, ``ba % v`` for its text
# (gh-91153 and kin, seen in 3.11.2 to 3.13.0). What resizes the object there leaves a
# pointer to freed memory, which C then reads or writes. So arguments become exact numbers,
# texts and lists *before* C sees them.
#
# Only a class that defines a conversion can misuse a store or a search. So these are
# CPython's own, at full speed, until such a class is about to be built (`seal_stores`).


_Method = Callable[..., Any]
_CONVERSIONS = frozenset({"__index__", "__float__", "__int__", "__trunc__"})
_sealed: set[str] = set()
_SEARCHES = ("find", "rfind", "index", "rindex", "count", "startswith", "endswith")


def converts(body: Any, bases: tuple[object, ...]) -> bool:
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


def exact_index(value: Any) -> Any:
    """Return `value`, where it stands for an integer or a slice, as exactly that."""
    kind = type(value)
    if kind is int or kind is bytes or value is None:
        return value
    if kind is slice:
        return slice(*map(exact_index, (value.start, value.stop, value.step)))
    if isinstance(value, int) or hasattr(kind, "__index__"):
        return int.__index__(operator.index(value))
    return value


def exact_text(value: Any) -> Any:
    """Return an exact str or bytes in place of a subclass; anything else as it is."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.__getitem__(value, slice(None))
    return exact_index(value)


def exact_float(value: Any) -> Any:
    """Return what converts itself to a float as an exact one; anything else as it is."""
    kind = type(value)
    if kind is float or kind is int or isinstance(value, str | bytes | bytearray):
        return value
    if hasattr(kind, "__float__") or hasattr(kind, "__index__"):
        return float(value)
    return value


def exact_item(array: Any) -> Callable[[Any], Any]:
    """Return what makes an item for `array` exact."""
    return exact_float if array.typecode in {"f", "d"} else exact_index


# Methods


def _exact(original: _Method, change: Callable[[Any], Any]) -> _Method:
    """Return `original` that gets of each argument what `change` makes of it."""

    @functools.wraps(original, updated=())
    def method(self: Any, /, *arguments: Any, **options: Any) -> Any:
        named = {name: change(value) for name, value in options.items()}
        return original(self, *map(change, arguments), **named)

    return method


@functools.cache
def _text_members() -> dict[type, dict[str, _Method]]:
    own = bytearray.__dict__
    original_join, original_mod = own["join"], own["__mod__"]

    @functools.wraps(original_join, updated=())
    def join(self: Any, parts: Any, /) -> Any:
        return original_join(self, list(parts))

    @functools.wraps(original_mod, updated=())
    def mod(self: Any, values: Any, /) -> Any:
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
    def setitem(self: Any, key: Any, value: Any, /) -> None:
        if type(key) is not int:
            key = exact_index(key)
        if type(value) is not int:
            value = exact_index(value)
        store(self, key, value)

    members = {name: _exact(own[name], exact_index) for name in names}
    return members | {"__setitem__": setitem}


@functools.cache
def _array_members(cls: Any) -> dict[str, _Method]:
    own = cls.__dict__
    store, append, insert = own["__setitem__"], own["append"], own["insert"]
    extend, fromlist = own["extend"], own["fromlist"]

    @functools.wraps(store, updated=())
    def setitem(self: Any, key: Any, value: Any, /) -> None:
        if type(key) is not int:
            key = exact_index(key)
        if type(value) is not int and type(value) is not float:
            value = exact_item(self)(value)
        store(self, key, value)

    @functools.wraps(append, updated=())
    def append_item(self: Any, value: Any, /) -> None:
        append(self, exact_item(self)(value))

    @functools.wraps(insert, updated=())
    def insert_item(self: Any, place: Any, value: Any, /) -> None:
        insert(self, exact_index(place), exact_item(self)(value))

    @functools.wraps(extend, updated=())
    def extend_items(self: Any, values: Any, /) -> None:
        plain = isinstance(values, cls)
        extend(self, values if plain else map(exact_item(self), values))

    @functools.wraps(fromlist, updated=())
    def from_list(self: Any, values: Any, /) -> None:
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


# Unicode errors: their C code believes where they say that the fault is ---------------
#
# ``str(error)`` reads ``error.object`` at ``error.start`` without looking whether that is
# below zero, so whoever chooses both reads the process's memory byte by byte. Codecs set
# them rightly; a task that makes such an error states places inside the text, once.


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
    def begin(self: Any, /, *arguments: Any, **options: Any) -> None:
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
