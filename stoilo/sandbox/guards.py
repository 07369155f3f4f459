"""Decisions on objects, where a name alone does not decide (reference sandbox §1.4).

The task's *own* classes and functions are those whose module is the task's: no source can
set ``__module__``. A guarded name is readable on an own object unless a library class
among its bases defines that name; whether a class is own is never asked of its
instances alone, since a task may extend library classes.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from types import CodeType, FunctionType, GenericAlias, ModuleType, resolve_bases
from typing import Any, NamedTuple, TypedDict

from stoilo.core.errors import PolicyRefusal
from stoilo.sandbox.formatting import guarded_format
from stoilo.sandbox.rules import (
    DEFINABLE_DUNDERS,
    GUARDED_ATTRIBUTES,
    READABLE_DUNDERS,
    TASK_MODULE,
    NameKind,
    attribute_kind,
)

__all__ = [
    "GuardError",
    "Guards",
    "is_own_class",
    "is_own_function",
]

class_dict: Callable[[type], Any] = type.__dict__["__dict__"].__get__
class_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__

_NAMEDTUPLE = frozenset({"_asdict", "_field_defaults", "_fields", "_make", "_replace"})
_PLAIN_TYPES = frozenset(
    {object, int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set}
    | {frozenset}
)
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})
_MEMBER_STATE = frozenset(
    {"_name_", "_value_"}
)  # documented: an enum's __new__ sets them
_WRAPPED = ("__func__", "fget", "fset", "fdel", "func")
_TEXT_METHODS = frozenset({"format", "format_map"})
_WRITABLE = {
    "decimal.Context": None,
    "numpy.flagsobj": frozenset({"writeable"}),
    "numpy._core.multiarray.flagsobj": frozenset({"writeable"}),
    "numpy.ndarray": frozenset({"dtype", "flat", "imag", "real", "shape"}),
    "types.SimpleNamespace": None,
}
"""Library types whose instances take assignment to (plain, or only these) attributes."""


class GuardError(PolicyRefusal):
    """A guard said no while the task ran."""


def is_own_class(cls: type) -> bool:
    """Whether the task's source defined `cls`."""
    return bool(class_dict(cls).get("__module__") == TASK_MODULE)


def is_own_function(value: object) -> bool:
    """Whether the task's source defined the function `value`."""
    return type(value) is FunctionType and value.__module__ == TASK_MODULE


def is_guarded_name(name: str) -> bool:
    """Whether a library class that defines `name` keeps it to itself."""
    private = name.startswith("_") and not name.startswith(("__", "_abc_"))
    return private or name in GUARDED_ATTRIBUTES


@functools.cache
def kept_names(cls: type) -> frozenset[str]:
    """Return the guarded names that the library class `cls` keeps to itself.

    Those of its dictionary, and those that its methods use on an instance: what a
    library's ``__init__`` stores is as much its own as what its class holds.
    """
    used = {
        name
        for member in class_dict(cls).values()
        for function in _functions_of(member)
        for name in _names_in(function.__code__)
    }
    kept = used - _MEMBER_STATE | set(class_dict(cls))
    return frozenset(filter(is_guarded_name, kept))


def keeps(cls: type, name: str) -> bool:
    """Whether the library class `cls` keeps `name` to itself."""
    return is_guarded_name(name) and name in kept_names(cls)


def _functions_of(member: object) -> list[FunctionType]:
    parts = (member, *(getattr(member, part, None) for part in _WRAPPED))
    return [part for part in parts if type(part) is FunctionType]


def _names_in(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    spelled = {part for part in code.co_consts if isinstance(part, str)}
    return spelled.union(code.co_names, *map(_names_in, inner))


def _kind_name(value: object) -> str:
    cls = value if isinstance(value, type) else type(value)
    return str.__str__(cls.__name__)[:64]


def _refuse_read(value: object, name: str) -> GuardError:
    return GuardError(
        "STO-G101",
        f"the attribute {str(name)[:64]!r} of a {_kind_name(value)} is out of reach",
        hint="a task sees the public interface of library objects only",
    )


def _refuse_write(value: object, name: str) -> GuardError:
    return GuardError(
        "STO-G102",
        f"the attribute {str(name)[:64]!r} of a {_kind_name(value)} cannot be changed",
        hint="a task changes its own objects, not modules or library classes",
    )


class _GuardedTypeMeta(type):
    """Lets ``isinstance(x, type)`` and ``issubclass`` mean what they mean."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, type)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, type)

    def __repr__(cls) -> str:
        return "<class 'type'>"


class Guards:
    """The guards of one prepared level.

    Attributes:
        own_types: own classes without a guarded name in any library base; generated code
            tests membership inline.
        stand_ins: real library class → façade class that ``type(x)`` shows for it.
        type_class: what a task knows as ``type``.
    """

    def __init__(
        self,
        facades: tuple[ModuleType, ...],
        stand_ins: dict[type, type],
        hide_memo: Callable[[Any], object] = lambda method: method,
    ) -> None:
        self._facades = frozenset(map(id, facades))
        self._kept = facades  # ids stay valid
        self._hide_memo = hide_memo
        self._checked: set[tuple[type, tuple[str, ...]]] = set()
        self.own_types: set[type] = set()
        self.stand_ins = stand_ins
        self.bases = _allowed_bases(facades)
        self.type_class = self._make_type_class()

    # Classes

    def type_of(self, value: object) -> type:
        """Return ``type(value)``, and never a metaclass: those build classes."""
        cls = type(value)
        if issubclass(cls, type):
            return self.type_class
        return self.stand_ins.get(cls, cls)

    def _make_type_class(self) -> type:
        type_of = self.type_of

        class GuardedType(metaclass=_GuardedTypeMeta):
            """``type`` with one argument."""

            def __new__(cls, *values: object) -> Any:  # noqa: ANN401
                if len(values) != 1:
                    raise GuardError("STO-G104", "type() builds no classes in a task")
                return type_of(values[0])

            def __class_getitem__(cls, item: object) -> object:
                return GenericAlias(cls, item)  # a real one's call would build classes

        GuardedType.__name__ = GuardedType.__qualname__ = "type"
        return GuardedType

    def build_class(
        self, body: Callable[..., object], name: str, *bases: object, **keywords: object
    ) -> object:
        """``__build_class__`` whose bases are own, plain or handed out by a façade."""
        for base in resolve_bases(bases):
            if not isinstance(base, type):
                raise TypeError("a base of a class must be a class")
            if not (is_own_class(base) or base in self.bases):
                raise GuardError("STO-G105", f"a task cannot extend {_kind_name(base)}")
        made = builtins.__build_class__(body, name, *bases, **keywords)
        if isinstance(made, type) and "__deepcopy__" in class_dict(made):
            self._guard_deepcopy(made)
        return made

    def _guard_deepcopy(self, made: type) -> None:
        method = class_dict(made)["__deepcopy__"]
        if not is_own_function(method):
            raise GuardError("STO-G105", "__deepcopy__ must be written as a method")
        type.__setattr__(made, "__deepcopy__", self._hide_memo(method))

    def _is_clean(self, cls: type) -> bool:
        return all(
            is_own_class(base) or not kept_names(base) for base in class_mro(cls)
        )

    def _collides(self, mro: tuple[type, ...], name: str) -> bool:
        return any(
            not is_own_class(base) and (name in class_dict(base) or keeps(base, name))
            for base in mro
        )

    def check_self(self, value: object, names: tuple[str, ...]) -> None:
        """Admit the first parameter of a method for direct access to `names`.

        Raises:
            GuardError: it is no own instance, or a library base keeps one of the names.
        """
        cls = type(value)
        if (cls, names) in self._checked:
            return
        if not is_own_class(cls) or isinstance(value, type):
            refuse = _refuse_read if names else _refuse_write
            raise refuse(value, names[0] if names else "")
        if self._is_clean(cls):
            self.own_types.add(cls)
            return
        for name in names:
            if self._collides(class_mro(cls), name):
                raise _refuse_read(value, name)
        self._checked.add((cls, names))

    # Reading

    def read(self, value: object, name: str) -> object:
        """Return ``value.name`` for a guarded `name` (what the transformer emits)."""
        if name in DEFINABLE_DUNDERS:
            return self._read_dunder(value, name)
        if name in _TEXT_METHODS:
            return self._read_format(value, name)
        if self._may_read(value, name):
            return getattr(value, name)
        raise _refuse_read(value, name)

    def _may_read(self, value: object, name: str) -> bool:
        if type(value) is ModuleType:
            return id(value) in self._facades
        cls = value if isinstance(value, type) else type(value)
        mro = class_mro(cls)
        if isinstance(value, type):  # a class has its metaclass's names too
            mro += class_mro(type(value))
        if is_own_class(cls) and not self._collides(mro, name):
            if not isinstance(value, type) and self._is_clean(cls):
                self.own_types.add(cls)
            return True
        if name in _NAMEDTUPLE:
            return issubclass(cls, tuple) and "_fields" in class_dict(cls)
        if name == "obj":
            return not isinstance(value, BaseException | memoryview)
        return is_own_function(value)

    def _read_dunder(self, value: object, name: str) -> object:
        cls = value if isinstance(value, type) else type(value)
        if cls in _PLAIN_TYPES or is_own_class(cls) or issubclass(cls, BaseException):
            return getattr(value, name)
        builtin = cls.__module__ == "builtins" and not issubclass(cls, ModuleType)
        if builtin and name not in _CONSTRUCTORS:
            return getattr(value, name)
        raise _refuse_read(value, name)

    def _read_format(self, value: object, name: str) -> object:
        cls = value if isinstance(value, type) else type(value)
        if issubclass(cls, str) and not is_own_method(cls, name):
            return guarded_format(value, name)
        found = getattr(value, name)
        if callable(found) and not self._may_read(value, name):
            raise _refuse_read(value, name)
        return found

    def getattr(self, value: object, name: object, *default: object) -> object:
        """``getattr`` under the name rule."""
        checked = self._checked_name(value, name)
        if checked == "__class__":
            return self.type_of(value)
        try:
            if attribute_kind(checked) is NameKind.PLAIN:
                return getattr(value, checked)
            return self.read(value, checked)
        except AttributeError:
            if len(default) == 1:
                return default[0]
            raise

    def hasattr(self, value: object, name: object) -> bool:
        """``hasattr`` under the name rule; operators may be asked for on anything."""
        if type(name) is str and name in DEFINABLE_DUNDERS:
            return hasattr(value, name)
        try:
            self.getattr(value, name)
        except AttributeError:
            return False
        return True

    def _checked_name(self, value: object, name: object) -> str:
        if type(name) is not str:
            raise TypeError("attribute name must be string")
        if name != "__class__" and attribute_kind(name) is NameKind.REFUSED:
            raise _refuse_read(value, name)
        return name

    # Writing

    def write(self, value: Any, name: str) -> Any:  # noqa: ANN401
        """Return `value` if the task may assign or delete its attribute `name`."""
        if not self._may_write(value, name):
            raise _refuse_write(value, name)
        return value

    def _may_write(self, value: object, name: str) -> bool:
        cls = value if isinstance(value, type) else type(value)
        if name in READABLE_DUNDERS:
            own = isinstance(value, type) and is_own_class(value)
            return own or is_own_function(value)
        if is_own_class(cls):
            return not is_guarded_name(name) or not self._collides(class_mro(cls), name)
        if is_own_function(value):
            return True
        if isinstance(value, type | ModuleType) or is_guarded_name(name):
            return False
        return isinstance(value, BaseException) or _is_open(cls, name)

    def setattr(self, value: object, name: object, new: object) -> None:
        """``setattr`` under the name and write rules."""
        checked = self._writable_name(value, name)
        setattr(self.write(value, checked), checked, new)

    def delattr(self, value: object, name: object) -> None:
        """``delattr`` under the name and write rules."""
        checked = self._writable_name(value, name)
        delattr(self.write(value, checked), checked)

    def _writable_name(self, value: object, name: object) -> str:
        if type(name) is not str:
            raise TypeError("attribute name must be string")
        if attribute_kind(name) is NameKind.REFUSED or name in DEFINABLE_DUNDERS:
            raise _refuse_write(value, name)
        return name


def _is_open(cls: type, name: str) -> bool:
    """Whether instances of the library class `cls` take assignment to `name`."""
    allowed = _WRITABLE.get(f"{cls.__module__}.{cls.__name__}", frozenset())
    return allowed is None or name in allowed


def is_own_method(cls: type, name: str) -> bool:
    """Whether a class of the task overrides `name` before any library class has it."""
    for base in class_mro(cls):
        if name in class_dict(base):
            return is_own_class(base)
    return False


def _allowed_bases(facades: tuple[ModuleType, ...]) -> frozenset[type]:
    handed_out = {
        value
        for facade in facades
        for value in vars(facade).values()
        if isinstance(value, type)
    }
    plain = set(_PLAIN_TYPES) | {property, staticmethod, classmethod}
    exceptions = {
        value
        for value in vars(builtins).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    typed = set(resolve_bases((NamedTuple, TypedDict)))
    return frozenset(handed_out | plain | exceptions | typed)


def import_loaded(name: str, *_ignored: object) -> None:
    """``__import__`` for C code of libraries that asks for a module already loaded.

    The interpreter takes the module out of ``sys.modules`` itself and drops what we
    return, so no caller ever gets a module from here.
    """
    import sys  # noqa: PLC0415 - no module of ours holds `sys` in reach of a task

    if type(name) is not str or name not in sys.modules:
        raise ModuleNotFoundError("no such module inside the sandbox", name=None)
