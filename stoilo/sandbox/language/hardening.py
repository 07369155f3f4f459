"""Methods of library classes and of CPython's own types that believe a task, exchanged.

Python takes anything for ``self`` when a function is read off its class, and library code
trusts it: ``UserList.copy(int)`` answers ``int.__class__``, the real ``type``. So every
public Python function of every class that a façade hands out, and of all their bases, is
replaced once, in the zygote, by one that looks at the real class of its first argument;
so are the functions inside properties and their like, which an own class may adopt.
Private names and most special ones need none of it: guards give them to no task.

Some methods written in C keep a bare pointer while they call back into a task (those of
bytearray, memoryview and array.array), or believe numbers that a task chose (Unicode errors).
A stand-in under the type's *name* would leave the type itself in reach: slices, exceptions
that codecs raise and ``__exit__``'s first argument are of it. So the member is exchanged in
the type: on every road, for every instance.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

from stoilo.core.errors import InternalError
from stoilo.sandbox.language.ownership import class_dict, class_mro
from stoilo.sandbox.language.rules import (
    DEFINABLE_DUNDERS,
    GuardError,
    kind_name,
    refuse_write,
)

_NAMESPACE: dict[str, Any] = {}
"""The globals of every function made here, which is how they are known again."""

_PARTS = ("func", "wrapped")
"""Where descriptors written in Python (cached properties and their like) keep a function."""

_inherits: Any = type.__dict__["__subclasscheck__"]


def classes_with_bases(modules: Iterable[ModuleType]) -> list[type]:
    """Return the classes in façades, what aliases of `typing` stand for, and all bases."""
    found: dict[int, type] = {}  # by identity: a stand-in equals what it stands for
    for facade in modules:
        for value in vars(facade).values():
            origin = value if isinstance(value, type) else _origin(value)
            if isinstance(origin, type):
                found.update({id(cls): cls for cls in class_mro(origin)})
    return list(found.values())


def _origin(value: object) -> object:
    return getattr(
        value, "__origin__", None
    )  # reads like ``typing.List.append`` go there


def bind_receivers(classes: Iterable[type]) -> None:
    """Make the methods of library `classes` demand an instance; once is enough."""
    for owner in classes:
        for name in trusting_methods(owner):
            replace_member(owner, name, _bind(owner, name, class_dict(owner)[name]))


def _is_reachable(owner: type, name: str) -> bool:
    """Whether a task may read `name` off the class `owner`, or off one of its own below."""
    if name in DEFINABLE_DUNDERS:  # guards give those of exceptions
        return issubclass(owner, BaseException)
    return not (name.startswith("_") or _is_shadowed(owner, name))


def _is_shadowed(owner: type, name: str) -> bool:
    """Whether a property of the metaclass answers when `name` is read off `owner`."""
    members = (class_dict(kind).get(name) for kind in class_mro(type(owner)))
    return any(hasattr(type(member), "__set__") for member in members)


_IMMUTABLE = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE (Include/object.h), since CPython 3.10."""

_FLAGS_OFFSET = object.__basicsize__ + 152
"""Of ``tp_flags`` behind the object header, on 64-bit machines, in every CPython since 3.8."""

_ALL_FLAGS = (1 << 64) - 1


def replace_members(cls: type, members: Mapping[str, object]) -> None:
    """Give the builtin or extension type `cls` these `members`, slots included.

    For the whole process. Whoever holds an old member, as a bound method, keeps it.

    Raises:
        InternalError: ``STO-P001`` this interpreter lays types out in another way.
    """
    flags = ctypes.c_ulong.from_address(id(cls) + _FLAGS_OFFSET)
    before = cls.__flags__ & _ALL_FLAGS
    if flags.value != before or not before & _IMMUTABLE:
        raise InternalError("STO-P001", f"{cls.__name__} is no immutable type here")
    namespace = gc.get_referents(cls.__dict__)[0]
    flags.value = before & ~_IMMUTABLE
    try:
        for name, value in members.items():
            namespace[name] = value  # where 3.12 and later look slots up
            type.__setattr__(cls, name, value)
    finally:
        flags.value |= _IMMUTABLE
    lost = [name for name in members if cls.__dict__.get(name) is not members[name]]
    if lost:
        raise InternalError("STO-P001", f"{cls.__name__}.{lost[0]} was not exchanged")


def replace_member(owner: type, name: str, member: object) -> None:
    """Replace a member of a class, also of one in C that takes no assignment."""
    try:
        type.__setattr__(owner, name, member)
    except TypeError:
        replace_members(owner, {name: member})


def is_bound(function: object) -> bool:
    """Whether `function` is one that looks at its receiver."""
    return type(function) is FunctionType and function.__globals__ is _NAMESPACE


def _bind(owner: type, name: str, member: Any) -> Any:
    """Return what stands for `member` of `owner`: itself if there is nothing to do."""
    if type(member) is FunctionType:
        return bind_method(owner, name, member)
    if isinstance(member, property):
        return _bind_property(owner, name, member)
    for part in _PARTS if hasattr(type(member), "__get__") else ():
        inner = getattr(member, part, None)
        if type(inner) is FunctionType and not is_bound(inner):
            return _rebuild(member, {part: bind_method(owner, name, inner)})
    return member


def _rebuild(member: Any, changed: dict[str, object]) -> Any:
    # The same object may be a member of other classes too
    kind: Any = type(member)
    made = kind.__new__(kind)
    vars(made).update(vars(member) | changed)
    return made


def _bind_property(owner: type, name: str, member: property) -> property:
    given: list[Any] = [member.fget, member.fset, member.fdel]
    bound: list[Any] = [
        bind_method(owner, name, part) if type(part) is FunctionType else part
        for part in given
    ]
    if all(map(operator.is_, given, bound)):
        return member
    made = property() if type(member) is property else _rebuild(member, {})
    fget, fset, fdel = bound
    property.__init__(made, fget, fset, fdel, member.__doc__)
    return made


def bind_method(owner: type, name: str, function: FunctionType) -> FunctionType:
    """Return `function` behind the check, with its signature, name and attributes."""
    code = function.__code__
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    first, keywords = named[: code.co_argcount], named[code.co_argcount :]
    starred, mapped = bool(code.co_flags & 4), bool(code.co_flags & 8)
    if is_bound(function) or not (first or starred):
        return function
    positional = first or ("_stoilo_self",)  # that of ``def method(*args)``
    make = _template(len(positional), keywords, starred, mapped)
    made = make(_inherits.__get__(owner), _refusal(owner, name), function, type)
    made.__code__ = _renamed(made.__code__, positional, code, anonymous=not first)
    made.__defaults__ = function.__defaults__
    made.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(made, function)
    return made


def _renamed(
    made: CodeType, positional: tuple[str, ...], like: CodeType, *, anonymous: bool
) -> CodeType:
    return made.replace(
        co_varnames=positional + made.co_varnames[len(positional) :],
        co_posonlyargcount=1 if anonymous else like.co_posonlyargcount,
        co_name=like.co_name,
        co_qualname=like.co_qualname,
    )


def _refusal(owner: type, name: str) -> Callable[[object], NoReturn]:
    def refuse(receiver: object) -> NoReturn:
        raise GuardError(
            "STO-G108",
            f"{name}() of {owner.__name__} was called on a {kind_name(type(receiver))}",
            hint="a library's method works on instances of its own class",
        )

    return refuse


@functools.cache
def _template(
    count: int, keywords: tuple[str, ...], starred: bool, mapped: bool
) -> Callable[..., FunctionType]:
    """Return what makes a checked method with parameters of this form.

    Compiled once a form: of the thousand methods of the widest level there are some 30.
    """
    places = [f"_stoilo_{number}" for number in range(count)]
    rest = ["*_stoilo_rest"] * starred
    more = ["**_stoilo_more"] * mapped
    bare = ["*"] if keywords and not starred else []
    taken = ", ".join([*places, *rest, *bare, *keywords, *more])
    given = ", ".join([*places, *rest, *(f"{key}={key}" for key in keywords), *more])
    source = (
        "def make(_stoilo_check, _stoilo_refuse, _stoilo_call, _stoilo_type):\n"
        f" def method({taken}):\n"
        "  if _stoilo_check(_stoilo_type(_stoilo_0)):\n"
        f"   return _stoilo_call({given})\n"
        "  _stoilo_refuse(_stoilo_0)\n"
        " return method"
    )
    made: dict[str, Any] = {}
    exec(compile(source, "<receivers>", "exec"), _NAMESPACE, made)  # noqa: S102 - our text
    maker: Callable[..., FunctionType] = made["make"]
    return maker


def trusting_methods(cls: type) -> list[str]:
    """Return the names under which `cls` has functions that take anything for ``self``."""
    return [
        name
        for name, member in class_dict(cls).items()
        if _is_reachable(cls, name) and _bind(cls, name, member) is not member
    ]


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
    """Exchange what asks arguments for text or length; in the zygote."""
    for cls, members in _text_members().items():
        replace_members(cls, members)


def seal_stores() -> None:
    """Exchange what asks arguments for numbers; before a class that converts is built.

    May be cut short anywhere, by a task at its limit of memory or recursion: then that
    class is not built, and the next one seals all of it again.
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
                "STO-G108", f"a {cls.__name__} begins and ends in its text"
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
    """Exchange constructor and fields of the three classes; in the zygote."""
    for cls, members in _members().items():
        replace_members(cls, members)
