"""Decisions on objects, where a name alone does not decide (reference sandbox §1.4).

A guarded name is readable on an own object (`ownership`) unless a library class among its
bases defines that name.
"""

from __future__ import annotations

import builtins
import functools
from abc import ABCMeta
from collections.abc import Callable, Mapping
from types import (
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MethodType,
    ModuleType,
    resolve_bases,
)
from typing import Any

from stoilo.sandbox.language.hardening import converts, seal_stores
from stoilo.sandbox.language.ownership import (
    PLAIN_TYPES,
    Extensions,
    class_dict,
    class_mro,
    find_bad_field,
    handed_out_classes,
    is_guarded_name,
    is_own_class,
    is_own_function,
    is_own_method,
    is_task_code,
    keeps,
    kept_names,
    may_assign,
    narrow_match_args,
)
from stoilo.sandbox.language.rules import (
    DEFINABLE_DUNDERS,
    GUARDED_DUNDERS,
    READABLE_DUNDERS,
    GuardError,
    NameKind,
    attribute_kind,
    kind_name,
    refuse_read,
    refuse_write,
)
from stoilo.sandbox.language.substitutes import (
    DESCRIBING,
    NARROWED,
    STORING,
    InstanceDict,
    guarded_format,
    make_type_class,
    read_narrowed,
    read_special,
)

__all__ = [
    "GuardError",
    "Guards",
    "check_fields",
    "class_dict",
    "class_mro",
    "import_loaded",
    "is_own_class",
    "is_own_function",
    "is_own_method",
]

_NAMEDTUPLE = frozenset({"_asdict", "_field_defaults", "_fields", "_make", "_replace"})
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})
_TEXT_METHODS = frozenset({"format", "format_map"})
_PLAIN_WITHOUT_NAME = frozenset(
    {GenericAlias, MappingProxyType, MethodType}
    | {type(None), type(Ellipsis), type(NotImplemented)}
)
_SPECIAL = DESCRIBING | STORING | {"__dict__"}
_super_target: Callable[[super], object] = vars(super)["__self__"].__get__


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
        extensions: Extensions,
        hide_class: Callable[[type], type],
        writable: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._facades = frozenset(map(id, facades))
        self._kept = facades  # ids stay valid
        self._hide_class = hide_class
        self._writable = writable
        self._checked: set[tuple[type, tuple[str, ...]]] = set()
        self.own_types: set[type] = set()
        self.stand_ins = stand_ins | {InstanceDict: dict}
        self.bases = handed_out_classes(facades)
        self._extensions = extensions
        self.type_class = make_type_class(self.type_of)

    # Classes

    def type_of(self, value: object) -> type:
        """Return ``type(value)``, and never a metaclass: those build classes."""
        cls = type(value)
        if issubclass(cls, type):
            return self.type_class
        if cls not in self.stand_ins:
            self.stand_ins[cls] = cls if self._may_call(cls) else self._hide_class(cls)
        return self.stand_ins[cls]

    def _may_call(self, cls: type) -> bool:
        """Whether a task may call `cls`: not what no façade hands out.

        Constructors of inner classes trust their callers: ``type(numpy.sum)()`` crashes.
        """
        return (
            _is_plain(cls)
            or is_own_class(cls)
            or cls in self.bases
            or issubclass(cls, BaseException)
        )

    def build_class(
        self, body: FunctionType, name: str, *bases: object, **keywords: object
    ) -> object:
        """``__build_class__`` whose bases are own, plain or listed by the level."""
        resolved = resolve_bases(bases)
        for base in resolved:
            if not isinstance(base, type):
                raise TypeError("a base of a class must be a class")
            if not (is_own_class(base) or self._may_extend(base)):
                raise GuardError("STO-G105", f"a task cannot extend {kind_name(base)}")
        if "metaclass" in keywords:
            if keywords["metaclass"] is not self.stand_ins.get(ABCMeta):
                raise GuardError("STO-G105", "the only metaclass is abc.ABCMeta")
            keywords["metaclass"] = ABCMeta
        self._extensions.check_class(name, body.__code__, resolved)
        if converts(body, resolved):
            seal_stores()
        made = builtins.__build_class__(body, name, *bases, **keywords)
        if isinstance(made, type) and is_own_class(made):
            check_fields(made)
        return made

    def _may_extend(self, base: type) -> bool:
        return base in self.bases and self._extensions.admits(base)

    def remember_in(
        self, namespace: dict[str, Any]
    ) -> Callable[[str], Callable[[Any], Any]]:
        """Return ``_stoilo_known``: what makes the innermost decorator of a class.

        It binds the class to a private name of the module when direct access to its
        instances is safe; methods compare ``type(self)`` with that name first.
        """

        def known(name: str) -> Callable[[Any], Any]:
            def remember(made: Any) -> Any:
                own = isinstance(made, type) and is_own_class(made)
                if own and self.is_clean(made):
                    namespace[name] = made
                return made

            return remember

        return known

    def is_clean(self, cls: type) -> bool:
        """Whether no library base of the own class `cls` keeps a name to itself."""
        return all(
            is_own_class(base) or not kept_names(base) for base in class_mro(cls)
        )

    def _collides(self, mro: tuple[type, ...], name: str) -> bool:
        return any(
            not is_own_class(base)
            and (name in class_dict(base) or keeps(base, name))
            and not self._extensions.gives(base, name)
            for base in mro
        )

    def _collides_below(self, value: object, name: str) -> bool:
        """Whether `value`, or a class that inherits from it, gets the name from a library."""
        if not isinstance(value, type):
            return self._collides(class_mro(type(value)), name)
        below: list[type] = type.__subclasses__(value)
        mro = class_mro(value) + class_mro(type(value))
        return self._collides(mro, name) or any(
            self._collides_below(cls, name) for cls in below
        )

    def see_in(self, namespace: dict[str, Any]) -> Callable[[str, Any], Any]:
        """Return ``_stoilo_seen``: what remembers the first own type seen at a place.

        It binds a private name of the module to the type, once that is one of
        `own_types`; code at that place compares with the name first.
        """

        def see(name: str, value: Any) -> Any:
            if namespace[name] is None and type(value) in self.own_types:
                namespace[name] = type(value)
            return value

        return see

    def check_self(self, value: object, names: tuple[str, ...]) -> None:
        """Admit the first parameter of a method for direct access to `names`."""
        cls = type(value)
        if (cls, names) in self._checked:
            return
        if not is_own_class(cls) or isinstance(value, type):
            refuse = refuse_read if names else refuse_write
            raise refuse(value, names[0] if names else "")
        if self.is_clean(cls):
            self.own_types.add(cls)
            return
        for name in names:
            if self._collides(class_mro(cls), name):
                raise refuse_read(value, name)
        self._checked.add((cls, names))

    # Reading

    def read(self, value: object, name: str) -> object:
        """Return ``value.name`` for a guarded `name` (what the transformer emits)."""
        if name in _SPECIAL:
            return read_special(self, value, name)
        if name in DEFINABLE_DUNDERS:
            return self._read_dunder(value, name)
        if name in _TEXT_METHODS:
            return self._read_format(value, name)
        if self._may_read(value, name):
            return getattr(value, name)
        if name in NARROWED:
            return read_narrowed(value, name)
        raise refuse_read(value, name)

    def _may_read(self, value: object, name: str) -> bool:
        if type(value) is ModuleType:
            return id(value) in self._facades
        cls = value if isinstance(value, type) else type(value)
        mro = class_mro(cls)
        if isinstance(value, type):  # a class has its metaclass's names too
            mro += class_mro(type(value))
        if is_own_class(cls) and not self._collides(mro, name):
            if not isinstance(value, type) and self.is_clean(cls):
                self.own_types.add(cls)
            return True
        if name in _NAMEDTUPLE:
            return issubclass(cls, tuple) and "_fields" in class_dict(cls)
        if name == "obj":
            return not isinstance(value, BaseException | memoryview)
        if name == "base":  # releasing it would free what an array stands on
            return not isinstance(getattr(value, name, None), memoryview)
        return is_own_function(value)

    def _read_dunder(self, value: object, name: str) -> object:
        if type(value) is super:
            return _read_super(value, name)
        cls = value if isinstance(value, type) else type(value)
        if isinstance(value, type) and is_own_class(value):
            return _bind_to_class(value, name)
        if cls in PLAIN_TYPES or is_own_class(cls) or issubclass(cls, BaseException):
            return getattr(value, name)
        builtin = cls.__module__ == "builtins" and not issubclass(cls, ModuleType)
        if builtin and name not in _CONSTRUCTORS:
            return getattr(value, name)
        raise refuse_read(value, name)

    def _read_format(self, value: object, name: str) -> object:
        cls = value if isinstance(value, type) else type(value)
        if issubclass(cls, str) and not is_own_method(cls, name):
            return guarded_format(value, name)
        found = getattr(value, name)
        holder = _super_target(value) if type(value) is super else value
        if callable(found) and not self._may_read(holder, name):
            raise refuse_read(value, name)
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

    def vars(self, value: object) -> object:
        """``vars`` of an own instance."""
        return read_special(self, value, "__dict__")

    def check_read(self, value: object, name: object) -> None:
        """Refuse a name that the task cannot read off the own instance `value`."""
        checked = self._checked_name(value, name)
        kind = attribute_kind(checked)
        special = kind is NameKind.REFUSED or checked in GUARDED_DUNDERS
        if kind is not NameKind.PLAIN and (
            special or not self._may_read(value, checked)
        ):
            raise refuse_read(value, checked)

    def _checked_name(self, value: object, name: object) -> str:
        if type(name) is not str:
            raise TypeError("attribute name must be string")
        if name != "__class__" and attribute_kind(name) is NameKind.REFUSED:
            raise refuse_read(value, name)
        return name

    # Writing

    def write(self, value: Any, name: str) -> Any:
        """Return `value` if the task may assign or delete its attribute `name`."""
        if not self._may_write(value, name):
            raise refuse_write(value, name)
        return value

    def _may_write(self, value: object, name: str) -> bool:
        cls = value if isinstance(value, type) else type(value)
        if name in READABLE_DUNDERS:
            own = isinstance(value, type) and is_own_class(value)
            return own or is_own_function(value)
        if is_own_class(cls):
            if not isinstance(value, type) and self.is_clean(cls):
                self.own_types.add(cls)
            if is_guarded_name(name) and self._collides_below(value, name):
                return False
            return not isinstance(value, type) or self._extensions.may_define(
                value, name
            )
        if is_own_function(value):
            return True
        if isinstance(value, type | ModuleType) or is_guarded_name(name):
            return False
        mro = class_mro(cls)
        return isinstance(value, BaseException) or may_assign(self._writable, mro, name)

    def setattr(self, value: object, name: object, new: object) -> None:
        """``setattr`` under the name and write rules."""
        checked = self._writable_name(value, name)
        setattr(self.write(value, checked), checked, new)

    def delattr(self, value: object, name: object) -> None:
        """``delattr`` under the name and write rules."""
        checked = self._writable_name(value, name)
        delattr(self.write(value, checked), checked)

    def check_write(self, value: object, name: object) -> None:
        """Refuse a name that the task cannot assign on `value`."""
        self.write(value, self._writable_name(value, name))

    def _writable_name(self, value: object, name: object) -> str:
        if type(name) is not str:
            raise TypeError("attribute name must be string")
        if attribute_kind(name) is NameKind.REFUSED or name in GUARDED_DUNDERS:
            raise refuse_write(value, name)
        return name


def _is_plain(cls: type) -> bool:
    """Whether `cls` is a type of plain Python: one that makes no code and no modules."""
    named = getattr(builtins, cls.__name__, None) is cls
    return named or cls in _PLAIN_WITHOUT_NAME


def check_fields(made: type) -> None:
    """Refuse (``STO-G105``) an own class that lets libraries read what is not its own."""
    if name := find_bad_field(made):
        raise GuardError("STO-G105", f"a dataclass cannot have the field {name!r:.64}")
    narrow_match_args(made)


def _bind_to_class(owner: type, name: str) -> object:
    """Return ``owner.name``; what a library wrote works on instances of `owner` only.

    Otherwise a library's ``__init__``, inherited by an own class, would assign
    attributes of modules and library classes. So would what a library writes into an
    own class: the methods of a dataclass.
    """
    found = getattr(owner, name)
    definer = next(
        (base for base in class_mro(owner) if name in class_dict(base)), owner
    )
    if is_own_class(definer) and is_task_code(class_dict(definer)[name]):
        return found
    if definer in PLAIN_TYPES or not callable(found):
        return found
    return _for_instances(owner, name, found)


def _read_super(value: super, name: str) -> object:
    """Return ``super().name``; bound to a class it works on that class's instances only."""
    found = getattr(value, name)
    target = _super_target(value)
    if target is None or not callable(found):
        raise refuse_read(value, name)
    if isinstance(target, type):
        return _for_instances(target, name, found)
    return _for_instances(type(target), name, found) if name == "__new__" else found


def _for_instances(owner: type, name: str, found: Callable[..., object]) -> object:
    """Return the unbound method `found`, refused for all but instances of `owner`."""

    @functools.wraps(found, updated=())
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        cls = self if name == "__new__" and isinstance(self, type) else type(self)
        if owner not in class_mro(cls):
            raise refuse_write(self, name)
        return found(self, *args, **kwargs)

    return method


def import_loaded(name: str, *_ignored: object) -> None:
    """``__import__`` for C code of libraries that asks for a module already loaded.

    The interpreter takes the module out of ``sys.modules`` itself and drops what we
    return, so no caller ever gets a module from here.
    """
    import sys  # noqa: PLC0415 - no module of ours holds `sys` in reach of a task

    if type(name) is not str or name not in sys.modules:
        raise ModuleNotFoundError("no such module inside the sandbox", name=None)
