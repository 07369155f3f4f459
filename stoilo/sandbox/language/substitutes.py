"""What a task gets in place of a library's attribute or class, which would give too much.

``__dict__``, ``vars`` and the special methods that store go around every check in plain
Python; here they take the names that a source may spell, and work on the task's own
instances only. Attributes that are safe in part are given in that part. Classes have
stand-ins: same instances, another constructor.
"""

from __future__ import annotations

import operator
import string
from _string import formatter_field_name_split  # type: ignore[import-not-found]  # CPython's own C module
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from types import GenericAlias, MappingProxyType
from typing import Any, Protocol

from stoilo.core.errors import PolicyRefusal
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

    # These go through the checked methods below, where dict's would go around them.
    get: Any = MutableMapping.get
    setdefault: Any = MutableMapping.setdefault
    pop: Any = MutableMapping.pop
    clear: Any = MutableMapping.clear
    update: Any = MutableMapping.update

    __slots__ = ("__real",)

    def __init__(self, real: dict[str, Any]) -> None:
        self.__real = real
        dict.__init__(self, ((name, real[name]) for name in self))

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
        dict.__setitem__(self, name, value)

    def __delitem__(self, name: Any) -> None:
        if name not in self:
            raise KeyError(name)
        del self.__real[name]
        dict.pop(self, name, None)

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
        return {name: self.__real[name] for name in self}

    def keys(self) -> Any:
        return self.copy().keys()

    def values(self) -> Any:
        return self.copy().values()

    def items(self) -> Any:
        return self.copy().items()

    def popitem(self) -> tuple[str, Any]:
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        name = next(reversed(self))
        return name, self.pop(name)


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
    # Own instances only, and none with a name that a library keeps: what is written there goes
    # past every setter.
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
    # A plain function: the bound method would show what it is bound to.

    def call(*given: Any, **named: Any) -> object:
        return found(*given, **named)

    return call


def _is_harmless(definer: Any, special: str) -> bool:
    if definer.__module__ in _HARMLESS:
        return special in _GENERIC
    return bool(definer.__module__ == "builtins")


def _fields(dtype: Any) -> object:
    # A copy: numpy's own mapping can be written through, and C believes the offsets in it.
    fields = dtype.fields
    return None if fields is None else MappingProxyType(dict(fields))


def _setflags(array: Any) -> Callable[..., None]:
    def setflags(
        write: object = None, align: object = None, uic: object = None
    ) -> None:
        if (write, align, uic) not in {(False, None, None), (None, None, None)}:
            message = "setflags() takes write=False only"
            raise GuardError("STO-G102", message, hint="copy the array to write to it")
        if write is not None:
            array.setflags(write=False)

    return setflags


_Home = tuple[str, str]  # module and name of a library class
_READERS: dict[str, tuple[_Home, Callable[[Any], object]]] = {
    "fields": (("numpy", "dtype"), _fields),
    "resize": (("PIL.Image", "Image"), operator.attrgetter("resize")),  # makes another
    "setflags": (("numpy", "ndarray"), _setflags),
}
NARROWED = frozenset(_READERS)


def read_narrowed(value: object, name: str) -> object:
    """Return what a task gets for ``value.name``, one of `NARROWED`, or refuse."""
    home, read = _READERS[name]
    bases = {(base.__module__, base.__name__) for base in class_mro(type(value))}
    if home not in bases:
        raise refuse_read(value, name)
    return read(value)


# ``str.format`` whose fields obey the attribute rule (CVE-2023-41039 and kin) ---------


_parse = string.Formatter().parse
_MAX_NESTING = 2  # CPython's own limit


def check_template(template: str, depth: int = _MAX_NESTING) -> None:
    """Raise ``STO-G101`` when a field of `template` reads an attribute not plain."""
    for _, field, specification, _ in _parse(template):
        if field is None:
            continue
        for is_attribute, name in formatter_field_name_split(field)[1]:
            if is_attribute and attribute_kind(name) is not NameKind.PLAIN:
                raise PolicyRefusal(
                    "STO-G101",
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


class StandIn(type):
    """Metaclass: ``isinstance`` and ``issubclass`` speak of ``__stoilo_real__``.

    A class that a task derives from a stand-in is an ordinary class again.
    """

    __stoilo_real__: type

    def __instancecheck__(cls, instance: object) -> bool:
        if "__stoilo_real__" not in cls.__dict__:
            return super().__instancecheck__(instance)
        return isinstance(instance, cls.__stoilo_real__)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        if "__stoilo_real__" not in cls.__dict__:
            return super().__subclasscheck__(subclass)
        real = getattr(subclass, "__stoilo_real__", subclass)
        return issubclass(real, cls.__stoilo_real__)

    def __repr__(cls) -> str:
        own = "__stoilo_real__" not in cls.__dict__
        return super().__repr__() if own else repr(cls.__stoilo_real__)

    def __eq__(cls, other: object) -> bool:
        return cls is other or other is cls.__dict__.get("__stoilo_real__")

    def __hash__(cls) -> int:
        return hash(cls.__dict__.get("__stoilo_real__", id(cls)))


def stand_for(
    real: type, make: Callable[..., object], *, name: str = "", module: str = ""
) -> Any:
    """Return a class that stands for `real`; calling it is calling `make`.

    Args:
        real: the library's class, of which instances are.
        make: what makes them.
        name: of the class, `real`'s own unless given.
        module: likewise.
    """

    def new(_cls: type, *values: object, **more: object) -> object:
        return make(*values, **more)

    members = {
        "__stoilo_real__": real,
        "__new__": new,
        "__class_getitem__": classmethod(GenericAlias),  # whose call calls its origin
        "__module__": module or real.__module__,
        "__qualname__": name or real.__qualname__,
    }
    return StandIn(name or real.__name__, (), members)


def hide_class(real: type) -> Any:
    """Return a class that stands for `real`, whose instances exist but are not made."""

    def refuse(*_values: object, **_more: object) -> object:
        raise GuardError("STO-G108", f"a task makes no {real.__name__:.64}")

    return stand_for(real, refuse)


def by_name(*members: Any) -> dict[str, object]:
    """Return functions and classes under their names, as a façade holds them."""
    return {member.__name__: member for member in members}


# What a task knows as ``type``: it tells what an object is, and builds no classes -----


class _GuardedTypeMeta(type):
    """Lets ``isinstance(x, type)`` and ``issubclass`` mean what they mean."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, type)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, type)

    def __repr__(cls) -> str:
        return "<class 'type'>"


def make_type_class(type_of: Callable[[object], type]) -> type:
    """Return what a task knows as ``type``; `type_of` answers for it."""

    class GuardedType(metaclass=_GuardedTypeMeta):
        """``type`` with one argument."""

        def __new__(cls, *values: object) -> Any:
            if len(values) != 1:
                raise GuardError("STO-G105", "type() builds no classes in a task")
            return type_of(values[0])

        def __class_getitem__(cls, item: object) -> object:
            return GenericAlias(cls, item)  # a real one's call would build classes

    GuardedType.__name__ = GuardedType.__qualname__ = "type"
    return GuardedType
