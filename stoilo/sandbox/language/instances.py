"""What an own instance keeps: ``__dict__``, ``vars`` and the special methods that store.

In plain Python these go around every check. Here they take the names that a source may
spell, and work on the task's own instances only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from stoilo.sandbox.language.ownership import class_dict, class_mro, is_own_class
from stoilo.sandbox.language.rules import (
    GUARDED_DUNDERS,
    GuardError,
    NameKind,
    attribute_kind,
    kind_name,
    refuse_read,
)

STORING = frozenset({"__delattr__", "__getattr__", "__getattribute__", "__setattr__"})
"""Special methods that take the name of an attribute."""

DESCRIBING = frozenset(
    {"__array__", "__class_getitem__", "__delete__", "__get__", "__init_subclass__"}
    | {"__set__", "__set_name__"}
)
"""Special methods of classes and descriptors: a library's write where they like."""

_HARMLESS = frozenset({"abc", "enum", "typing"})
_GENERIC = frozenset({"__class_getitem__", "__init_subclass__"})
_find_dict = object.__getattribute__
_super_class: Callable[[super], type] = vars(super)["__thisclass__"].__get__
_super_target: Callable[[super], object] = vars(super)["__self__"].__get__


class InstanceDict(dict[str, Any]):
    """The attributes of one own instance, as ``instance.__dict__`` shows them.

    Live: it reads and writes the instance. What a C function finds in it as a dict is what
    the instance had when this was made.
    """

    __slots__ = ("__real",)

    def __init__(self, real: dict[str, Any]) -> None:
        self.__real = real
        super().__init__((name, real[name]) for name in self)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self.__real if _is_spelled(name)])

    def __len__(self) -> int:
        return sum(map(_is_spelled, self.__real))

    def __contains__(self, name: object) -> bool:
        return _is_spelled(name) and name in self.__real

    def __getitem__(self, name: Any) -> Any:
        if not _is_spelled(name):
            raise KeyError(name)
        return self.__real[name]

    def __setitem__(self, name: Any, value: Any) -> None:
        if not _is_spelled(name):
            raise GuardError("STO-G102", f"the name {name!r:.64} is reserved")
        self.__real[name] = value
        super().__setitem__(name, value)

    def __delitem__(self, name: Any) -> None:
        if name not in self:
            raise KeyError(name)
        del self.__real[name]
        super().pop(name, None)

    def __eq__(self, other: object) -> bool:
        other = other.copy() if type(other) is InstanceDict else other
        return self.copy() == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # as a dict's

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return dict, (self.copy(),)  # what `copy` makes of it

    def copy(self) -> dict[str, Any]:
        """Return a dict of its own."""
        return {name: self.__real[name] for name in self}

    def keys(self) -> Any:
        """Return the names."""
        return self.copy().keys()

    def values(self) -> Any:
        """Return the values."""
        return self.copy().values()

    def items(self) -> Any:
        """Return pairs of name and value."""
        return self.copy().items()

    def get(self, name: Any, default: Any = None) -> Any:
        """Return the value or `default`."""
        try:
            return self[name]
        except KeyError:
            return default

    def setdefault(self, name: Any, default: Any = None) -> Any:
        """Return the value; `default`, which is stored, where there is none."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: Any, *default: Any) -> Any:
        """Remove the name and return its value."""
        if name not in self and default:
            return default[0]
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last pair."""
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        """Remove every attribute."""
        for name in self:
            del self[name]

    def update(self, *values: Any, **named: Any) -> None:
        """Store what ``dict(*values, **named)`` holds."""
        for name, value in dict(*values, **named).items():
            self[name] = value


def _is_spelled(name: object) -> bool:
    """Whether a source could assign the attribute `name` of its own instance."""
    if type(name) is not str or name in GUARDED_DUNDERS:
        return False
    return attribute_kind(name) is not NameKind.REFUSED


class Rules(Protocol):
    """What the special methods ask of the guards."""

    def check_read(self, value: object, name: object) -> None:
        """Refuse a name that the task cannot read off `value`."""

    def check_write(self, value: object, name: object) -> None:
        """Refuse a name that the task cannot assign on `value`."""

    def is_clean(self, cls: type) -> bool:
        """Whether no library base of `cls` keeps a name to itself."""


def read_special(rules: Rules, value: Any, name: str) -> object:
    """Return ``value.name``, a name of `STORING` or `DESCRIBING` or ``__dict__``."""
    if name == "__dict__":
        return _read_dict(rules, value)
    return _storing(rules, value, name) if name in STORING else _describing(value, name)


def _is_own(value: object) -> bool:
    return is_own_class(type(value)) and not isinstance(value, type)


def _read_dict(rules: Rules, value: object) -> InstanceDict:
    """Return ``value.__dict__`` of an own instance without names that libraries keep."""
    if not hasattr(value, "__dict__"):
        raise AttributeError(f"{kind_name(value)!r} object has no attribute '__dict__'")
    if not _is_own(value) or not rules.is_clean(type(value)):
        raise refuse_read(value, "__dict__")
    return InstanceDict(_find_dict(value, "__dict__"))


def _definer(mro: Iterable[type], name: str, *, library: bool = False) -> type | None:
    """Return the first class of `mro`, or the first `library` class, that has `name`."""
    for cls in mro:
        if name in class_dict(cls) and not (library and is_own_class(cls)):
            return cls
    return None


def _storing(rules: Rules, value: Any, special: str) -> Callable[..., object]:
    """Return ``value.__setattr__`` and its like for the names and objects of the task."""
    found = getattr(value, special)
    target = _super_target(value) if type(value) is super else value
    check = rules.check_write if special in _CHANGING else rules.check_read

    def call(instance: Any, name: Any, *new: Any) -> object:
        if not _is_own(instance) or _skips_library(value, instance, special):
            raise refuse_read(value, special)
        if name == "__dict__" and special == "__getattribute__":
            return _read_dict(rules, instance)
        check(instance, name)
        return found(*([instance] if unbound else []), name, *new)

    unbound = isinstance(target, type)
    return call if unbound else lambda *given: call(target, *given)


_CHANGING = frozenset({"__delattr__", "__setattr__"})


def _skips_library(value: Any, instance: object, special: str) -> bool:
    """Whether ``value.special`` stands below a library class that has its own."""
    mro = class_mro(type(instance))
    places = {id(cls): place for place, cls in enumerate(mro)}  # `==` may lie
    library = _definer(mro, special, library=True)
    strict = library is not None and library.__module__ != "builtins"
    last = places[id(library)] if strict else len(mro)
    if type(value) is super:
        return places[id(_super_class(value))] >= last
    return isinstance(value, type) and places.get(id(value), len(mro) + 1) > last


def _describing(value: Any, special: str) -> object:
    """Return ``value.special`` of an own class or instance, or of what `super` finds."""
    is_super = type(value) is super
    target: Any = _super_target(value) if is_super else value
    cls = target if isinstance(target, type) else type(target)
    mro = class_mro(cls)
    if is_super and target is not None:
        mro = mro[mro.index(_super_class(value)) + 1 :]
    definer = _definer(mro, special)
    library = definer is not None and not is_own_class(definer)
    if not is_own_class(cls) or (library and not _is_harmless(definer, special)):
        raise refuse_read(value, special)
    found = getattr(value, special)
    return _plainly(found) if library else found


def _plainly(found: Callable[..., object]) -> Callable[..., object]:
    """Return a function that calls the interpreter's own `found`, and is nothing more."""

    def call(*given: Any, **named: Any) -> object:
        return found(*given, **named)

    return call


def _is_harmless(definer: Any, special: str) -> bool:
    if definer.__module__ in _HARMLESS:
        return special in _GENERIC
    return bool(definer.__module__ == "builtins")
