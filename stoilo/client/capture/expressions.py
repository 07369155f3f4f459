"""Small constants as source text: literals, dispatch tables, dates, patterns, fractions.

What has no short expression returns None here and travels as data instead.
"""

from __future__ import annotations

import ast
import collections
import datetime as dt
import decimal
import enum
import fractions
import functools
import importlib
import math
import operator
import re
import string
import struct
import types
import typing
from collections.abc import Callable, Iterable

from stoilo.client.capture.library import library_path
from stoilo.client.capture.targets import Target, reference

MODULE_LITERAL_CHARS = 400  # A constant whose text is longer travels as data, chars

MAX_DEPTH = 12
Place = Callable[[object, str, str], Target]
Arguments = tuple[tuple[object, ...], dict[str, object]]


class _NoExpressionError(Exception):
    """The value has no short expression."""


def plain_literal(value: object) -> ast.expr | None:
    """Return the literal of a scalar, or None."""
    if isinstance(value, float) and not math.isfinite(value):
        return _call(ast.Name("float", ast.Load()), [ast.Constant(str(value))])
    if type(value) is complex:
        parts = [plain_literal(value.real), plain_literal(value.imag)]
        return _call(ast.Name("complex", ast.Load()), [item for item in parts if item])
    if type(value) in {int, float} and math.copysign(1, value) < 0:  # type: ignore[arg-type]  # a number
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))  # type: ignore[operator]  # same
    if value is None or type(value) in {bool, int, float, str, bytes}:
        return ast.Constant(value)  # type: ignore[arg-type]  # narrowed by type
    return None


def is_current_literal(source: ast.expr | None, value: object) -> bool:
    """Whether `source` is a literal that still gives `value`, types included."""
    if source is None:
        return False
    try:
        literal = ast.literal_eval(source)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return type(literal) is type(value) and repr(literal) == repr(value)


def is_namedtuple(kind: type) -> bool:
    """Whether `kind` is a tuple class with named fields."""
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


def _call(function: ast.expr, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(function, arguments, [])


class Expressions:
    """Build expressions for one module; `place` finds or makes the target of an object."""

    def __init__(self, place: Place, limit: int) -> None:
        self.place = place
        self.limit = limit

    def build(self, value: object, owner: Target, where: str) -> ast.expr | None:
        """Return an expression for `value` inside a statement of `owner`, or None."""
        marks = len(owner.now), len(owner.later)
        try:
            expression = self._express(value, owner, where, 0)
        except _NoExpressionError:
            expression = None
        if expression is None or len(ast.unparse(expression)) > self.limit:
            del owner.now[marks[0] :], owner.later[marks[1] :]
            return None
        return expression

    def _express(
        self, value: object, owner: Target, where: str, depth: int
    ) -> ast.expr:
        literal = plain_literal(value)
        if literal is not None:
            return literal
        if depth > MAX_DEPTH:
            raise _NoExpressionError
        if value is Ellipsis:
            return ast.Constant(...)
        if value is NotImplemented:
            return ast.Name("NotImplemented", ast.Load())
        if isinstance(value, type) or _is_code(value):
            return self._named(value, owner, where)
        return self._composed(value, owner, where, depth)

    def _named(self, value: object, owner: Target, where: str) -> ast.expr:
        if builtin := builtin_name(value):
            return ast.Name(builtin, ast.Load())
        if isinstance(value, types.MethodDescriptorType | types.WrapperDescriptorType):
            holder = self._named(value.__objclass__, owner, where)
            return ast.Attribute(holder, value.__name__, ast.Load())
        if not isinstance(value, types.ModuleType) and (path := library_path(value)):
            return self.library(path, owner, where)
        return reference(self.place(value, "", where), owner, now=True)

    def library(self, path: tuple[str, str], owner: Target, where: str) -> ast.expr:
        """Return ``module.attribute`` of a library."""
        module = self.place(importlib.import_module(path[0]), "", where)
        return ast.Attribute(reference(module, owner, now=True), path[1], ast.Load())

    def _composed(
        self, value: object, owner: Target, where: str, depth: int
    ) -> ast.expr:
        def many(items: Iterable[object], suffix: str = "[...]") -> list[ast.expr]:
            if len(made := list(items)) > self.limit:
                raise _NoExpressionError
            return [
                self._express(item, owner, f"{where}{suffix}", depth + 1)
                for item in made
            ]

        match value:
            case list() if type(value) is list:
                return ast.List(many(value), ast.Load())
            case tuple() if type(value) is tuple:
                return ast.Tuple(many(value), ast.Load())
            case dict() if type(value) is dict:
                return ast.Dict(list(many(value.keys())), many(value.values()))
            case set() if type(value) is set and value:
                return ast.Set(many(_sorted(value)))
            case set() | frozenset() if type(value) in {set, frozenset}:
                inner = [ast.List(many(_sorted(value)), ast.Load())] if value else []
                return _call(ast.Name(type(value).__name__, ast.Load()), [*inner])
        return self._constructed(value, owner, where, depth)

    def _constructed(
        self, value: object, owner: Target, where: str, depth: int
    ) -> ast.expr:
        kind = type(value)
        if isinstance(value, enum.Enum):
            return self._member(value, owner, where)
        if isinstance(value, re.Pattern):
            return self._pattern(value, owner, where)
        arguments = _namedtuple_arguments(value) or _constructor_arguments(value)
        if arguments is None:
            raise _NoExpressionError
        positional, named = arguments
        keywords = [
            ast.keyword(name, self._express(item, owner, where, depth + 1))
            for name, item in named.items()
        ]
        parts = [self._express(item, owner, where, depth + 1) for item in positional]
        return ast.Call(self._named(kind, owner, where), parts, keywords)

    def _member(self, value: enum.Enum, owner: Target, where: str) -> ast.expr:
        """Return ``Color.RED``; a flag of several members is called by its number."""
        holder = self._named(type(value), owner, where)
        name = str(value.name)  # None for some combined flags
        if name.isidentifier() and name != "None":
            return ast.Attribute(holder, name, ast.Load())
        return _call(holder, [ast.Constant(value.value)])

    def _pattern(
        self, value: re.Pattern[typing.Any], owner: Target, where: str
    ) -> ast.expr:
        """Return ``re.compile(text, re.M | re.X)``."""
        arguments: list[ast.expr] = [ast.Constant(value.pattern)]
        implied = re.UNICODE if isinstance(value.pattern, str) else re.RegexFlag(0)
        flags: ast.expr | None = None
        for flag in re.RegexFlag(value.flags) & ~implied:
            one = self.library(("re", str(flag.name)), owner, where)
            flags = ast.BinOp(flags, ast.BitOr(), one) if flags else one
        if flags is not None:
            arguments.append(flags)
        return _call(self.library(("re", "compile"), owner, where), arguments)


def builtin_name(value: object) -> str:
    """Return the name of `value` among Python's built-ins, or an empty text."""
    import builtins  # noqa: PLC0415 - looked into, never changed

    name = getattr(value, "__name__", "")
    is_it = isinstance(name, str) and getattr(builtins, name, None) is value
    return name if is_it and name != "None" else ""


def _is_code(value: object) -> bool:
    kinds = (
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ModuleType,
        functools.partial,
    )
    return isinstance(value, kinds) or type(value).__name__ in {
        "ufunc",
        "_ArrayFunctionDispatcher",
        "_lru_cache_wrapper",
    }


def _sorted(items: Iterable[object]) -> list[object]:
    return sorted(items, key=repr)


def _namedtuple_arguments(value: object) -> Arguments | None:
    if isinstance(value, tuple) and is_namedtuple(type(value)):
        return tuple(value), {}
    return None


_CONSTRUCTORS: dict[type, Callable[[typing.Any], Arguments]] = {
    fractions.Fraction: lambda v: ((v.numerator, v.denominator), {}),
    decimal.Decimal: lambda v: ((str(v),), {}),
    dt.date: lambda v: ((v.year, v.month, v.day), {}),
    dt.time: lambda v: (
        (v.hour, v.minute, v.second, v.microsecond),
        {} if v.tzinfo is None else {"tzinfo": v.tzinfo},
    ),
    dt.timedelta: lambda v: ((v.days, v.seconds, v.microseconds), {}),
    dt.timezone: lambda v: ((v.utcoffset(None),), {}),
    dt.datetime: lambda v: (
        (v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond),
        {} if v.tzinfo is None else {"tzinfo": v.tzinfo},
    ),
    range: lambda v: ((v.start, v.stop, v.step), {}),
    slice: lambda v: ((v.start, v.stop, v.step), {}),
    collections.Counter: lambda v: ((dict(v),), {}),
    collections.OrderedDict: lambda v: ((list(v.items()),), {}),
    collections.defaultdict: lambda v: ((v.default_factory, dict(v)), {}),
    collections.deque: lambda v: (
        (list(v),),
        {} if v.maxlen is None else {"maxlen": v.maxlen},
    ),
    operator.itemgetter: lambda v: (v.__reduce__()[1], {}),
    struct.Struct: lambda v: ((v.format,), {}),
    string.Template: lambda v: ((v.template,), {}),
    typing.TypeVar: lambda v: ((v.__name__,), {}),
}


def _constructor_arguments(value: object) -> Arguments | None:
    """Return constructor arguments of an exactly known library type."""
    maker = _CONSTRUCTORS.get(type(value))
    return maker(value) if maker else None
