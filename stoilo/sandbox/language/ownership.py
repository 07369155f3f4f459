"""Whose a class, function or name is, and what a task may extend, define and assign.

The task's *own* classes and functions are those whose module is the task's: no source can
set ``__module__``. Whether a class is own is never asked of its instances alone, since a
task may extend library classes.

Library code believes what it reads off itself: a name that it spells in its own methods
is answered by whatever a subclass puts under that name. So a class is a base only when
the level lists it, with the names that its documentation gives to subclasses. Every
other name that the library class knows stays the library's; one that it does not know
is free. Special methods are the interpreter's, which checks what they give, or hooks
(`stoilo.sandbox.language.hooks`), which are asked for no name that a library knows.
"""

from __future__ import annotations

import builtins
import dis
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, filterfalse, takewhile
from types import CodeType, FunctionType, ModuleType, resolve_bases
from typing import Any, NamedTuple, TypedDict

from stoilo.core.errors import InternalError
from stoilo.sandbox.language.rules import (
    GUARDED_ATTRIBUTES,
    TASK_FILENAME,
    TASK_MODULE,
    GuardError,
    NameKind,
    attribute_kind,
    is_dunder,
    is_plain,
    kind_name,
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
    methods = chain.from_iterable(map(functions_of, class_dict(cls).values()))
    codes = (function.__code__ for function in methods)
    return frozenset(class_dict(cls)).union(*map(_names_in, codes))


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
    exceptions = {
        value
        for value in vars(builtins).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    return _FREE | handed_out | exceptions


# Names that a class lets others read by: fields of dataclasses, ``__match_args__``
#
# ``case C(x)`` reads the attribute that ``C.__match_args__`` names off whatever counts as an
# instance of C; ``asdict`` and ``replace`` read every field off the instance. Both are
# plain access by a name that the task chose, though no source can write either table: the
# library makes them from annotations. A metaclass such as ABCMeta counts foreign objects as
# instances (``register``, protocols), and a library base may keep a name to itself.


_FIELDS, _MATCH_ARGS = "__dataclass_fields__", "__match_args__"


def _inherited(cls: type, name: str) -> Iterable[object]:
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
    names = _inherited(cls, _FIELDS)
    return next((str(name) for name in names if not may_be_field(cls, name)), "")


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


_Listed = Mapping[str, tuple[str, ...]]

ANY_NAME = "*"
"""In a class's list: every name but guarded ones, which are listed one by one."""

_FREE = frozenset(
    {*PLAIN_TYPES, property, staticmethod, classmethod, BaseException}
    | set(resolve_bases((NamedTuple, TypedDict)))
)
"""Bases of every level, written in C, that believe nothing of their subclasses."""

_SELF_LOADS = ("LOAD_FAST", "LOAD_DEREF")


def stored_names(body: CodeType) -> frozenset[str]:
    """Return what the body of a class defines, by the names that it will have."""
    return frozenset(
        step.argval
        for step in dis.get_instructions(body)
        if step.opname == "STORE_NAME"
    )


@functools.cache
def known_names(cls: type) -> frozenset[str]:
    """Return the names that instances of the library class `cls` are asked for.

    Those in its dictionary, those that its methods read off ``self``, and every guarded
    name that they spell anywhere.
    """
    methods = chain.from_iterable(map(functions_of, class_dict(cls).values()))
    asked = set(class_dict(cls)).union(*map(_read_off_self, methods))
    return guarded_names(cls).union(filterfalse(is_dunder, asked))


def _read_off_self(function: FunctionType) -> Iterator[str]:
    """Yield the attributes that `function`'s own code reads off its first parameter."""
    code = function.__code__
    if not code.co_argcount:
        return
    holder, loaded = code.co_varnames[0], False
    for step in dis.get_instructions(code):
        if loaded and step.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
            yield step.argval
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        loaded = step.opname.startswith(_SELF_LOADS) and names[-1:] == (holder,)


class Extensions:
    """What tasks of one level may extend and override.

    Args:
        listed: dotted name of a class → names that an own class may define (level data,
            trusted). With a ``+`` after the class it holds for what the library derives
            from it, too, where that has no list of its own.
        facades: façades by dotted name, where the classes are found.

    Raises:
        InternalError: ``STO-P001`` a listed name is no class of a façade.
    """

    def __init__(self, listed: _Listed, facades: Mapping[str, ModuleType]) -> None:
        self._listed = dict.fromkeys(_FREE, frozenset({ANY_NAME}))
        self._families: set[type] = {BaseException}
        for dotted, names in listed.items():
            module, _, name = dotted.removesuffix("+").rpartition(".")
            cls = getattr(facades.get(module), name, None)
            if not isinstance(cls, type):
                raise InternalError("STO-P001", f"level data name no class {dotted}")
            self._listed[cls] = frozenset(names)
            if dotted.endswith("+"):
                self._families.add(cls)
        self._above = self._inherit_upwards()
        self._unrelated: set[type] = set()
        self._beside: dict[type, set[type]] = {}
        self._kept: dict[type, frozenset[str]] = {}
        for cls in self._families:  # of modules and kin: once a zygote, not every run
            self.kept_by(cls)

    def _inherit_upwards(self) -> dict[type, frozenset[str]]:
        """Return the lists of unlisted bases of listed classes: what all of those admit."""
        above: dict[type, frozenset[str]] = {}
        for cls, names in self._listed.items():
            for base in class_mro(cls):
                if self._nearest(base) is None:
                    above[base] = above.get(base, names) & names
        return above

    def _nearest(self, library: type) -> frozenset[str] | None:
        for base in class_mro(library):
            if base in self._listed and (base is library or base in self._families):
                return self._listed[base]
        return None

    def admits(self, base: type) -> bool:
        """Whether a task may extend `base`, a class that is not its own."""
        return self._nearest(base) is not None

    def _list_of(self, library: type) -> frozenset[str]:
        return self._nearest(library) or self._above.get(library, frozenset())

    def gives(self, library: type, name: str) -> bool:
        """Whether own classes define the guarded, not private `name` of `library`.

        Such a ``format`` is no text's: an own instance may be asked for it.
        """
        return not name.startswith("_") and name in self._list_of(library)

    def kept_by(self, library: type) -> frozenset[str]:
        """Return the names that `library` knows and does not give to own classes."""
        if library not in self._kept:
            listed = self._list_of(library)
            known = guarded_names if ANY_NAME in listed else known_names
            self._kept[library] = known(library) - listed
        return self._kept[library]

    def check_class(self, name: str, body: CodeType, bases: Iterable[type]) -> None:
        """Check a class of the task before it is made.

        Raises:
            GuardError: ``STO-G105``, a class of the task defines a name that a library
                class above or beside it keeps.
        """
        mros = {cls: None for base in bases for cls in class_mro(base)}
        libraries = [cls for cls in mros if not _is_free(cls)]
        if not libraries:
            return
        self._unrelated.clear()
        stored = stored_names(body)
        mixins = [cls for cls in mros if is_own_class(cls)]
        for mixin in mixins:  # the body may assign on them before the class exists
            self._beside.setdefault(mixin, set()).update(libraries)
        for library in libraries:
            self._check_names(name, stored, library)
            for mixin in mixins:
                if library not in class_mro(mixin):
                    self._check_names(mixin.__name__, class_dict(mixin), library)

    def _check_names(self, owner: str, names: Iterable[str], library: type) -> None:
        for name in sorted(self.kept_by(library).intersection(names)):
            raise GuardError(
                "STO-G105",
                f"{owner:.64} cannot define {name!r:.64}: {kind_name(library)} keeps it",
                hint="choose another name, or hold the object and extend nothing",
            )

    def may_define(self, cls: type, name: str) -> bool:
        """Whether the task may assign `name` on its class `cls`.

        What extends `cls` by then has the name too.
        """
        if cls in self._unrelated:
            return True
        libraries = set(self._libraries_of(cls))
        if not libraries:
            self._unrelated.add(cls)
        return not any(name in self.kept_by(library) for library in libraries)

    def _libraries_of(self, cls: type) -> Iterator[type]:
        """Yield the library classes above the own class `cls` and above what extends it.

        Also above what is about to extend it: `check_class` has been asked.
        """
        yield from (base for base in class_mro(cls) if not _is_free(base))
        yield from self._beside.get(cls, ())
        below: list[type] = type.__subclasses__(cls)
        for child in below:
            yield from self._libraries_of(child)


def _is_free(cls: type) -> bool:
    return cls in _FREE or is_own_class(cls)


def may_assign(writable: _Listed, mro: tuple[type, ...], name: str) -> bool:
    """Whether instances of the library class with this `mro` take ``x.name = value``.

    The guards must not import the libraries, so `writable` (level data) has their classes
    by name.
    """
    for base in mro:
        names = writable.get(f"{base.__module__}.{base.__qualname__}")
        if names is not None:
            free = "*" in names and f"-{name}" not in names and _is_data(mro, name)
            return name in names or free
    return False


def _is_data(mro: tuple[type, ...], name: str) -> bool:
    found = [vars(base)[name] for base in mro if name in vars(base)]
    return not any(callable(value) or hasattr(value, "__get__") for value in found)
