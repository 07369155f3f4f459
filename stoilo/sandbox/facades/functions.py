"""`functools`, `operator`, `copy`, `abc`, `enum` and `types`: no way around the rule of names.

None of them reads an attribute, builds a class or fills an object by a name that a source
could not spell.
"""

from __future__ import annotations

import copy
import enum
import functools
import operator
import types
from abc import ABCMeta
from collections.abc import Callable
from types import UnionType
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.hooks import LEDGERS, Memo, call_masked
from stoilo.sandbox.language.ownership import (
    PLAIN_TYPES,
    class_dict,
    class_mro,
    is_own_class,
    is_own_function,
    is_own_method,
)
from stoilo.sandbox.language.rules import (
    TASK_MODULE,
    GuardError,
    NameKind,
    attribute_kind,
    is_plain,
)
from stoilo.sandbox.language.substitutes import by_name, hide_class, stand_for

# `functools`: no copying of attributes by name, no rewriting of library classes -------


def update_wrapper(wrapper: Any, wrapped: Any) -> Any:
    """Give `wrapper`, a function of the task, the name and text of `wrapped`."""
    if is_own_function(wrapper):
        for name in ("__name__", "__qualname__", "__doc__"):
            if hasattr(wrapped, name):
                setattr(wrapper, name, getattr(wrapped, name))
    return wrapper


def wraps(wrapped: Any) -> Callable[[Any], Any]:
    """Return a decorator that calls `update_wrapper`."""
    return lambda wrapper: update_wrapper(wrapper, wrapped)


def total_ordering(cls: Any) -> Any:
    if not isinstance(cls, type) or not is_own_class(cls):
        raise GuardError(
            "STO-G102", "total_ordering() needs a class of the task itself"
        )
    return functools.total_ordering(cls)


class cached_property:  # noqa: N801 - the library's name
    """``functools.cached_property`` whose attribute name only the class body chooses."""

    __slots__ = ("_func", "_name")  # in the class, so no subclass reaches them

    def __init__(self, func: Callable[[Any], object]) -> None:
        self._func = func
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> object:
        if instance is None:
            return self
        cache = instance.__dict__
        if self._name not in cache:
            cache[self._name] = self._func(instance)
        return cache[self._name]


def singledispatch(func: Any) -> Any:
    """``functools.singledispatch`` whose ``register`` takes a class, no annotation.

    The library would evaluate annotations, and a task has some that are text. It would
    also take over what the task stored on `func`, a ``dispatch`` of its own for one.
    """
    dispatcher = functools.singledispatch(lambda *_values, **_named: None)
    register_class = dispatcher.register
    register_class(object, func)
    functools.update_wrapper(dispatcher, func, updated=())

    def register(cls: Any, func: Any = None) -> Any:
        if not isinstance(cls, type | UnionType):
            raise TypeError("register() needs a class: write @fun.register(int)")
        return register_class(cls, func)

    dispatcher.register = register  # type: ignore[method-assign]  # see above
    return dispatcher


class singledispatchmethod:  # noqa: N801 - the library's name
    """``functools.singledispatchmethod`` on top of `singledispatch`."""

    __slots__ = ("_dispatcher", "_function")

    def __init__(self, func: Any) -> None:
        if not callable(func) and not hasattr(func, "__get__"):
            raise TypeError(f"{func!r:.64} is not callable or a descriptor")
        self._dispatcher = singledispatch(func)
        self._function = func

    def register(self, cls: Any, method: Any = None) -> Any:
        return self._dispatcher.register(cls, method)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            found = self._dispatcher.dispatch(args[0].__class__)
            return found.__get__(instance, owner)(*args, **kwargs)

        return update_wrapper(method, self._function)


for _kind in (cached_property, singledispatchmethod):
    _kind.__module__ = "functools"


_FUNCTOOLS = by_name(
    *(cached_property, singledispatch, singledispatchmethod, total_ordering),
    *(update_wrapper, wraps),
)


# `operator`: getters by name, under the rule that names in source obey ----------------


def _check_name(name: object, parts: list[str]) -> None:
    if all(attribute_kind(part) is NameKind.PLAIN for part in parts):
        return
    raise GuardError(
        "STO-G101",
        f"the attribute {str.__str__(str(name))[:64]!r} is out of reach by name",
        hint="a task sees the public interface of library objects only",
    )


def attrgetter(attr: Any, /, *attrs: Any) -> Any:
    # Names at run time obey the rule of names in source: or it would read ``__globals__``.
    for name in (attr, *attrs):
        if type(name) is not str:
            raise TypeError("attribute name must be a string")
        _check_name(name, name.split("."))
    return operator.attrgetter(attr, *attrs)


def methodcaller(name: Any, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    # ``operator.methodcaller`` of a name that compiles to direct access
    if type(name) is not str:
        raise TypeError("method name must be a string")
    _check_name(name, [name])

    def call(obj: Any, /) -> Any:
        return call_masked(getattr(obj, name), *args, **kwargs)

    return call


# `copy`: the library's ledger of copies stays its own ---------------------------------
#
# ``deepcopy`` keeps a dictionary from addresses to copies and believes it. A task that
# could write there would choose an object's state, names and all; one that could read there
# would see addresses. So a task's ``__deepcopy__`` is handed a `Memo` that stands for it.


_rebuild = copy._reconstruct  # type: ignore[attr-defined]  # noqa: SLF001 - fills copies


def deepcopy(x: Any, memo: Any = None) -> Any:
    """``copy.deepcopy``; any `memo` but the one given to ``__deepcopy__`` is a new one."""
    if type(memo) is Memo and memo in LEDGERS:
        return copy.deepcopy(x, LEDGERS[memo])
    memo, ledger = Memo(), dict[int, object]()
    LEDGERS[memo] = ledger
    try:
        return copy.deepcopy(x, ledger)
    finally:
        del LEDGERS[memo]


def _checked_rebuild(
    x: Any,
    memo: Any,
    make: Callable[..., object],
    args: Any,
    *state: Any,
    **options: Any,
) -> Any:
    """``copy._reconstruct`` that fills nothing but a new object of `x`'s class."""

    def checked(*values: object) -> object:
        made = make(*values)
        if is_own_method(type(x), "__new__") and type(made) is not type(x):
            raise GuardError("STO-G102", "__new__ gave a copy of another class")
        return made

    return _rebuild(x, memo, checked, args, *state, **options)


def _build_copy(_level: Level) -> dict[str, object]:
    # Put the check into the library, which calls it for nested objects too
    copy._reconstruct = _checked_rebuild  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    return {"deepcopy": deepcopy}


# `abc`: the metaclass by name only, and marks on the task's own functions only --------


_DESCRIPTORS = frozenset({classmethod, property, staticmethod})


def abstractmethod(function: Any) -> Any:
    if is_own_function(function) or is_own_class(type(function)):
        function.__isabstractmethod__ = True
    elif type(function) not in _DESCRIPTORS:  # those ask what they hold
        raise GuardError("STO-G102", "abstractmethod() needs a function of the task")
    return function


def abstractclassmethod(function: Any) -> Any:
    return classmethod(abstractmethod(function))


def abstractstaticmethod(function: Any) -> Any:
    return staticmethod(abstractmethod(function))


def abstractproperty(function: Any, *accessors: Any) -> Any:
    return property(abstractmethod(function), *accessors)


_ABC = by_name(
    *(abstractclassmethod, abstractmethod, abstractproperty, abstractstaticmethod),
    hide_class(ABCMeta),
)


# `enum`: the functional form may not smuggle in names that a class body could not -----


_real_call = enum.EnumMeta.__call__
_make_member = enum._proto_member.__set_name__  # type: ignore[attr-defined]  # noqa: SLF001 - names it


def _member_names(names: Any) -> list[Any]:
    # Read once: a task's own sequence could show the check other names than the library.
    if isinstance(names, str):
        return str.__str__(names).replace(",", " ").split()
    if isinstance(names, dict):
        names = names.items()
    return [item if isinstance(item, str) else tuple(item) for item in names]


def _extends_more(cls: type) -> bool:
    # Whether an enum extends a library class, whose names its members could take
    libraries = {base for base in class_mro(cls) if not is_own_class(base)}
    return any(base.__module__ != enum.__name__ for base in libraries - PLAIN_TYPES)


def _checked_call(cls: Any, value: Any, names: Any = None, **options: Any) -> Any:
    # ``EnumMeta.__call__`` whose member names pass the attribute rule
    if names is None:
        return _real_call(cls, value, **options)
    members = _member_names(names)
    for member in members:
        name = member if isinstance(member, str) else member[0]
        if not is_plain(name):
            raise GuardError("STO-G105", f"an enum cannot have the member {name!r:.64}")
    if options.pop("type", None) is not None or _extends_more(cls):
        raise GuardError("STO-G105", "write an enum with a mixed-in type as a class")
    return _real_call(cls, value, members, **options | {"module": TASK_MODULE})


def _checked_member(self: Any, cls: Any, name: str) -> None:
    """``_proto_member.__set_name__`` of a name that no mixin has, unless it is plain.

    Since CPython 3.12 a member called as a mixin's method reads that name off its value.
    """
    mixed = any(name in class_dict(base) for base in class_mro(cls)[1:])
    if mixed and attribute_kind(name) is not NameKind.PLAIN:
        raise GuardError("STO-G105", f"an enum cannot have the member {name!r:.64}")
    _make_member(self, cls, name)


def _build_enum(_level: Level) -> dict[str, object]:
    # In the metaclass, which task enums inherit however they are made.
    enum.EnumMeta.__call__ = _checked_call  # type: ignore[method-assign]  # see above
    enum._proto_member.__set_name__ = _checked_member  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    return {}


# `types`: plain records with the attribute rule on their names; no makers of functions
#
# A function made of a code object and a dictionary would run without any guard, so the
# types of functions and generators only tell what an object is. ``MethodType`` stays: what
# it makes calls a function with one more argument, as `functools.partial` does.


def _make_namespace(**attributes: Any) -> types.SimpleNamespace:
    # Otherwise keywords would assign names that no source can spell.
    for name in attributes:
        if not is_plain(name):
            raise GuardError("STO-G102", "an attribute name is reserved")
    return types.SimpleNamespace(**attributes)


_FUNCTION = hide_class(types.FunctionType)
_TYPES = {
    "BuiltinFunctionType": hide_class(types.BuiltinFunctionType),
    "FunctionType": _FUNCTION,
    "GeneratorType": hide_class(types.GeneratorType),
    "LambdaType": _FUNCTION,
    "SimpleNamespace": stand_for(types.SimpleNamespace, _make_namespace),
}


FACADES: dict[str, object] = {
    "abc": _ABC,
    "copy": _build_copy,
    "enum": _build_enum,
    "functools": _FUNCTOOLS,
    "operator": by_name(attrgetter, methodcaller),
    "types": _TYPES,
}
