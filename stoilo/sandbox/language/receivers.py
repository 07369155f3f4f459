"""Receivers: a library's method works on instances of its own class, as methods in C do.

Python takes anything for ``self`` when a function is read off its class, and library code
trusts it: ``UserList.copy(int)`` answers ``int.__class__``, the real ``type``. So every
public Python function of every class that a façade hands out, and of all their bases, is
replaced once, in the zygote, by one that looks at the real class of its first argument;
so are the functions inside properties and their like, which an own class may adopt.
Private names and most special ones need none of it: guards give them to no task.

The check is two calls into C in front of the same signature (about 30 ns; ``*args,
**kwargs`` would cost 100 to 260). So all methods have it, not only those in which
somebody saw a danger.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import operator
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

from stoilo.core.errors import InternalError
from stoilo.sandbox.language.ownership import class_dict, class_mro
from stoilo.sandbox.language.rules import DEFINABLE_DUNDERS, GuardError, kind_name

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
    return not name.startswith("_")


_IMMUTABLE = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE (Include/object.h), since CPython 3.10."""

_FLAGS_OFFSET = object.__basicsize__ + 152
"""Of ``tp_flags`` behind the object header, on 64-bit machines, in every CPython since 3.8."""

_ALL_FLAGS = (1 << 64) - 1


def replace_members(cls: type, members: Mapping[str, object]) -> None:
    """Give the builtin or extension type `cls` these `members`, slots included.

    For the whole process. Whoever holds an old member, as a bound method, keeps it.

    Args:
        cls: an immutable type of CPython's.
        members: by name; all exist already.

    Raises:
        InternalError: ``STO-G130`` this interpreter lays types out in another way.
    """
    flags = ctypes.c_ulong.from_address(id(cls) + _FLAGS_OFFSET)
    before = cls.__flags__ & _ALL_FLAGS
    if flags.value != before or not before & _IMMUTABLE:
        raise InternalError("STO-G130", f"{cls.__name__} is no immutable type here")
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
        raise InternalError("STO-G130", f"{cls.__name__}.{lost[0]} was not exchanged")


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
    """Return a copy: the same object may be a member of other classes too."""
    kind: Any = type(member)
    made = kind.__new__(kind)
    vars(made).update(vars(member) | changed)
    return made


def _bind_property(owner: type, name: str, member: property) -> property:
    """Return a property of the same class whose functions look at their receiver."""
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
    """Return `made` with the names of parameters that `like` has."""
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
