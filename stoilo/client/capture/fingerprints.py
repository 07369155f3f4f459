"""What a capture depends on, as a key that is cheap to make: no text is read or parsed.

Two equal keys mean the same source. So the key holds more than capture looks at: of each
function its code, defaults and closure, and whatever any name of its text means now in
its globals; of each class what it holds. Constants count by value, functions, classes and
arrays by identity: `Fingerprint.alive` keeps those, or an id could come to mean another
object. Of what cannot be watched so there is no key, and it is captured anew each time.
"""

from __future__ import annotations

import ast
import enum
import functools
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

from stoilo.client.capture.classes import functions_in, methods_of
from stoilo.client.capture.expressions import builtin_name
from stoilo.client.capture.library import is_library_module, library_path
from stoilo.client.capture.scopes import identifiers_of
from stoilo.client.capture.targets import Target
from stoilo.client.capture.texts import find_class, functions_at
from stoilo.core.errors import UsageError

MOST_VALUES = 5_000  # a key of more is not worth its time
_BY_VALUE = frozenset({type(None), bool, int, str, bytes, type(...)})
_BY_REPR = frozenset({float, complex})  # tells -0.0 from 0.0, and a NaN is itself
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
_UNCHANGING = frozenset(
    {re.Pattern, range, Fraction, Decimal, date, datetime, time, timedelta, timezone}
)
_ALIASES = frozenset({types.GenericAlias, types.UnionType})
_ARRAYS = frozenset({"numpy.ndarray", "torch.Tensor"})  # travel as data, encoded anew
Key = tuple[object, ...]


class UnwatchedError(Exception):
    """There is something of which nobody could tell whether it has changed."""


class Names:
    """Every name that the text of a function or class mentions, dead code included."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[object, frozenset[str]]] = {}

    def of_function(self, func: types.FunctionType) -> frozenset[str]:
        """Return them for one function; found once for its code."""
        return self._once(func.__code__, lambda: _names_of_function(func))

    def of_class(self, cls: type) -> frozenset[str]:
        """Return them for a class statement."""
        node = functools.partial(find_class, cls, methods_of(cls), cls.__name__)
        return self._once(cls, lambda: frozenset(_names_in(node())))

    def _once(self, of: object, find: Callable[[], frozenset[str]]) -> frozenset[str]:
        if id(of) not in self._found:
            if len(self._found) > MOST_VALUES:
                self._found.clear()
            self._found[id(of)] = (of, find())
        return self._found[id(of)][1]


class Fingerprint:
    """Makes the key of one capture; has the face of a `Graph` that arguments ask of.

    Attributes:
        alive: every object whose identity is part of the key.
    """

    def __init__(self, names: Names, *, is_literal: bool = False) -> None:
        """Begin; `is_literal`: containers are written into the source, none travels."""
        self.alive: list[object] = []
        self.discover: object = None
        self.placed: list[Key] = []
        self._names, self._is_literal = names, is_literal
        self._seen: dict[Key, int] = {}

    def root(self, value: object) -> Key:
        """Return the key of a function at the top.

        Raises:
            UnwatchedError: there is none.
        """
        is_one = isinstance(value, types.FunctionType) and _is_own(value.__globals__)
        return self._function(value, is_root=True) if is_one else self._value(value)  # type: ignore[arg-type]  # checked

    def place(self, value: object, wanted: str, where: str) -> Target:
        """Note a function or class among the arguments."""
        self.placed.append((wanted, id(value), self._value(value)))
        return Target([wanted], where)

    place_callable = place

    # -- values ------------------------------------------------------------------------

    def _value(self, value: object, names: frozenset[str] = frozenset()) -> Key:
        kind = type(value)
        if kind in _BY_VALUE:
            return (kind, value)
        if kind in _BY_REPR:
            return (kind, repr(value))
        # Other than by names of the using function, a module has nothing to show.
        again = self._again(value, names if kind is types.ModuleType else None)
        return again or (kind, *self._parts(value, names))

    def _again(self, value: object, context: object = None) -> Key:
        """Return where a value was met before, which shows what is shared; else empty."""
        place = (id(value), context)
        if place in self._seen:
            return ("again", 0 if self._is_literal else id(value), self._seen[place])
        if len(self._seen) > MOST_VALUES:
            raise UnwatchedError
        self._seen[place] = len(self._seen)
        self.alive.append(value)
        return ()

    def _parts(self, value: object, names: frozenset[str]) -> Key:
        kind = type(value)
        if kind in _CONTAINERS or kind in _ALIASES:
            # By identity too where it may travel: what is encoded is the object kept.
            who = 0 if self._is_literal or kind is tuple else id(value)
            return (who, *map(self._value, _items_of(value)))
        if isinstance(value, types.ModuleType):
            return self._module(value, names)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.FunctionType) and _is_own(value.__globals__):
            return self._function(value)
        named = f"{kind.__module__}.{kind.__qualname__}"
        if kind in _UNCHANGING or named in _ARRAYS:
            return (id(value),)
        if _is_library_code(value):
            return (id(value), library_path(value))
        raise UnwatchedError

    def _named(self, space: dict[str, object], names: frozenset[str]) -> Iterator[Key]:
        """Yield what names mean in a module's globals."""
        for name in sorted(names & space.keys()):
            yield (name, *self._value(space[name], names))

    # -- functions, classes, modules -----------------------------------------------------

    def _function(self, func: types.FunctionType, *, is_root: bool = False) -> Key:
        code, space = func.__code__, func.__globals__
        # A closure made anew is the same one, if all else is: only at the top, where
        # nothing refers to the object itself.
        self.alive += [func, code, space]
        who = 0 if is_root else id(func)
        if is_root:
            self._seen.setdefault((id(func), None), len(self._seen))
        named_defaults = tuple((func.__kwdefaults__ or {}).items())
        defaults = self._value(func.__defaults__), self._value(named_defaults)
        cells = tuple(map(self._cell, func.__closure__ or ()))
        named = tuple(self._named(space, self._names.of_function(func)))
        kept = tuple((name, id(part)) for name, part in vars(func).items())
        self.alive += vars(func).values()
        place = (id(code), id(space), func.__name__, func.__qualname__)
        return (who, *place, defaults, cells, named, kept)

    def _cell(self, cell: types.CellType) -> Key:
        place = (id(cell), None)
        if place in self._seen:
            return ("cell", self._seen[place])
        self._seen[place] = len(self._seen)
        self.alive.append(cell)
        try:
            return ("cell", self._value(cell.cell_contents))
        except ValueError:  # empty
            raise UnwatchedError from None

    def _class(self, cls: type) -> Key:
        if is_library_module(cls.__module__):
            return (id(cls), library_path(cls))
        if issubclass(cls, enum.Enum):
            raise UnwatchedError
        names = self._names.of_class(cls)
        methods = methods_of(cls)
        loaded = sys.modules.get(cls.__module__)
        space = methods[0].__globals__ if methods else vars(loaded) if loaded else {}
        held = tuple(
            (name, *self._member(value))
            for name, value in vars(cls).items()
            if name in names or functions_in(value) or not name.startswith("_")
        )
        named = tuple(self._named(space, names))
        bases = tuple(map(self._value, cls.__bases__))
        return (id(cls), cls.__name__, cls.__qualname__, bases, held, named)

    def _member(self, value: object) -> Key:
        """Return the key of what a class holds under a name."""
        if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            self.alive.append(value)
            return (id(value),)
        if isinstance(value, types.FunctionType) or not functions_in(value):
            return self._value(value)
        self.alive.append(value)
        return (id(value), *map(self._value, functions_in(value)))

    def _module(self, module: types.ModuleType, names: frozenset[str]) -> Key:
        name, space = module.__name__, vars(module)
        if is_library_module(name):  # a submodule that is loaded is imported as well
            loaded = tuple(n for n in names if f"{name}.{n}" in sys.modules)
            return (id(module), name, loaded)
        if "__getattr__" in space:
            raise UnwatchedError
        return (id(module), name, *self._named(space, names))


def _items_of(value: Any) -> Iterable[object]:  # noqa: ANN401 - a container or an alias
    if isinstance(value, types.GenericAlias | types.UnionType):  # of signatures, mostly
        return (getattr(value, "__origin__", None), *value.__args__)
    return (*value, *value.values()) if isinstance(value, dict) else value


def _is_own(space: dict[str, object]) -> bool:
    return not is_library_module(str(space.get("__name__", "")))


def _is_library_code(value: object) -> bool:
    """Whether `value` is a library's, under a name of it, and holds nothing of others."""
    if isinstance(value, types.MethodType | functools.partial):
        return False
    found = builtin_name(value) or library_path(value)
    return callable(value) and bool(found)


def _names_of_function(func: types.FunctionType) -> frozenset[str]:
    found = set(_code_names(func.__code__))
    try:
        nodes = functions_at(func)
    except UsageError:  # made by a decorator: no text of it travels
        nodes = []
    return frozenset(found.union(*map(_names_in, nodes)))


def _code_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_names(constant)


def _names_in(node: ast.AST) -> set[str]:
    inner = ast.walk(node)
    return identifiers_of(node).union(n.attr for n in inner if type(n) is ast.Attribute)
