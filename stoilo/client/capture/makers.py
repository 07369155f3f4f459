"""One maker a kind of value: which statement stands for it in the module to be.

Default arguments become the values they have now, not the expressions that made them.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

from stoilo.client.capture.classes import make_class
from stoilo.client.capture.expressions import builtin_name, is_current_literal
from stoilo.client.capture.graph import Graph, Maker
from stoilo.client.capture.library import check_module, is_library_module, library_path
from stoilo.client.capture.plain import as_def, check_inner_imports, strip_annotations
from stoilo.client.capture.refusals import refuse
from stoilo.client.capture.scopes import Outside
from stoilo.client.capture.targets import (
    DataTarget,
    FunctionTarget,
    ImportTarget,
    Target,
    WrapperTarget,
    forwarding_call,
    reference,
)
from stoilo.client.capture.texts import file_of, find_function, place_of


def rewrite_defaults(
    graph: Graph, target: FunctionTarget, func: types.FunctionType
) -> None:
    """Replace the defaults of the target's node by the function's present ones.

    Small constants become literals, functions and classes their names. A larger value
    travels as data: the parameter gets a sentinel that the first lines replace.
    """
    node = target.node
    assert node is not None  # noqa: S101 - set by the caller
    writer = _Writer(graph, target)
    named = [*node.args.posonlyargs, *node.args.args]
    values = list(func.__defaults__ or ())
    sources: list[ast.expr | None] = list(node.args.defaults)
    sources = sources if len(sources) == len(values) else [None] * len(values)
    tail = named[len(named) - len(values) :] if values else []
    node.args.defaults = [
        writer.write(argument.arg, source, value)
        for argument, source, value in zip(tail, sources, values, strict=True)
    ]
    keywords = func.__kwdefaults__ or {}
    node.args.kw_defaults = [
        writer.write(argument.arg, source, keywords[argument.arg])
        if argument.arg in keywords
        else None
        for argument, source in zip(
            node.args.kwonlyargs, node.args.kw_defaults, strict=True
        )
    ]
    at = 1 if ast.get_docstring(node, clean=False) is not None else 0
    node.body[at:at] = writer.prologue


class _Writer:
    def __init__(self, graph: Graph, target: FunctionTarget) -> None:
        self.graph = graph
        self.target = target
        self.prologue: list[ast.stmt] = []

    def write(self, name: str, source: ast.expr | None, value: object) -> ast.expr:
        if source is not None and is_current_literal(source, value):
            return source
        where = f"default of `{name}` in {self.target.where}"
        expression = self.graph.expressions.build(value, self.target, where)
        return expression or self._bind_later(name, value, where)

    def _bind_later(self, name: str, value: object, where: str) -> ast.expr:
        data = self.graph.place(value, f"{name}_default", where)
        test = ast.Compare(
            ast.Name(name, ast.Load()),
            [ast.Is()],
            [reference(self.graph.sentinel, self.target, now=False)],
        )
        taken = reference(data, self.target, now=False)
        assign = ast.Assign([ast.Name(name, ast.Store())], taken)
        self.prologue.append(ast.If(test, [assign], []))
        return reference(self.graph.sentinel, self.target, now=True)


def make_target(graph: Graph, value: object, wanted: str, where: str) -> Target:
    """Return a new target for `value` by the first maker that is meant for it.

    Raises:
        UsageError: ``STO-C…`` naming `where`.
    """
    for is_meant, maker in _MAKERS:
        if is_meant(value, wanted):
            return maker(graph, value, wanted, where)
    return _make_data(graph, value, wanted, where)


# -- imports ---------------------------------------------------------------------------


def _make_module(
    graph: Graph, value: types.ModuleType, wanted: str, where: str
) -> Target:
    name = value.__name__
    if not is_library_module(name):
        refuse(
            "STO-C013",
            f"{where} is your own module {name}, used as an object",
            "write module.function directly where you use it, or import the names: "
            "their source then travels",
        )
    check_module(name, where)
    target = ImportTarget([wanted or name.rpartition(".")[2]], where, module=name)
    graph.remember(value, target)
    return target


def _make_import(graph: Graph, value: object, wanted: str, where: str) -> Target:
    module, attribute = library_path(value, wanted) or ("", "")
    check_module(module, where)
    target = ImportTarget(
        [wanted or attribute], where, module=module, attribute=attribute
    )
    graph.remember(value, target)
    return target


# -- functions and what decorators make of them ----------------------------------------


def _make_function(
    graph: Graph, value: types.FunctionType, wanted: str, where: str
) -> Target:
    name = value.__name__ if value.__name__.isidentifier() else wanted or "task"
    # Its own name first: `__name__`, and a traceback, say the same there as here
    target = FunctionTarget([name, wanted] if wanted else [name], where or name)
    graph.remember(value, target)
    node = find_function(value, where or name)
    if isinstance(node, ast.AsyncFunctionDef):
        refuse(
            "STO-C014",
            f"{where} is an async function; a task runs alone, without an event loop",
            "write it as a plain def",
        )
    target.node = as_def(node)
    target.node.decorator_list = []
    strip_annotations(target.node)
    check_inner_imports(target.node, where or name)
    rewrite_defaults(graph, target, value)
    code = value.__code__
    target.file = file_of(code)
    cells = dict(zip(code.co_freevars, value.__closure__ or (), strict=True))
    outside = Outside(value.__globals__, cells)
    graph.resolve_unit(target, target.node, outside, place_of(code))
    return target


def _make_class_function(
    graph: Graph, value: types.FunctionType, wanted: str, where: str
) -> Target:
    """A method taken from its class, whose ``super()`` needs the class: go through it."""
    holder = _class_cell(value)
    target = WrapperTarget([wanted or value.__name__], where)
    graph.remember(value, target)
    owner = callee(graph, holder, target, (where, ""))
    method = ast.Attribute(owner, value.__name__, ast.Load())
    target.call = forwarding_call(method, [], {})
    return target


def _make_cached(graph: Graph, value: Any, wanted: str, where: str) -> Target:  # noqa: ANN401
    """``functools.lru_cache``: the decorator again, around the plain function."""
    options = value.cache_parameters()
    keywords = [ast.keyword(key, ast.Constant(item)) for key, item in options.items()]

    def decorate(target: Target) -> ast.expr:
        path = ("functools", "lru_cache")
        return ast.Call(graph.expressions.library(path, target, where), [], keywords)

    return _make_decorated(graph, value, (wanted, "uncached", where), decorate)


def _make_context(graph: Graph, value: Any, wanted: str, where: str) -> Target:  # noqa: ANN401
    """``contextlib.contextmanager``: the decorator again."""

    def decorate(target: Target) -> ast.expr:
        path = ("contextlib", "contextmanager")
        return graph.expressions.library(path, target, where)

    return _make_decorated(graph, value, (wanted, "generator", where), decorate)


def _make_decorated(
    graph: Graph,
    value: Any,  # noqa: ANN401 - anything with __wrapped__
    naming: tuple[str, str, str],
    decorate: Callable[[Target], ast.expr],
) -> Target:
    wanted, suffix, where = naming
    inner = value.__wrapped__
    name = wanted or inner.__name__
    target = DataTarget([name], where)
    graph.remember(value, target)
    plain = graph.place(inner, f"{name}_{suffix}", where)
    function = reference(plain, target, now=True)
    target.expression = ast.Call(decorate(target), [function], [])
    return target


def _make_method(
    graph: Graph,
    value: types.MethodType | types.BuiltinMethodType,
    wanted: str,
    where: str,
) -> Target:
    name, holder = value.__name__, value.__self__
    target = WrapperTarget([wanted or name], where)
    graph.remember(value, target)
    holder_name = "" if isinstance(holder, type) else type(holder).__name__.lower()
    owner = callee(graph, holder, target, (where, holder_name))
    if isinstance(value, types.MethodType) and getattr(holder, name, None) != value:
        function = callee(graph, value.__func__, target, (where, ""))
        target.call = forwarding_call(function, [owner], {})
    else:
        method = ast.Attribute(owner, name, ast.Load())
        target.call = forwarding_call(method, [], {})
    return target


def _make_partial(
    graph: Graph, value: functools.partial[object], wanted: str, where: str
) -> Target:
    name = getattr(value.func, "__name__", "")
    target = WrapperTarget([wanted or name or "partial"], where)
    graph.remember(value, target)
    function = callee(graph, value.func, target, (where, ""))
    parts = [_operand(graph, item, target, (where, "")) for item in value.args]
    named = {
        key: _operand(graph, item, target, (where, key))
        for key, item in value.keywords.items()
    }
    target.call = forwarding_call(function, parts, named)
    return target


def callee(
    graph: Graph, value: object, owner: Target, naming: tuple[str, str]
) -> ast.expr:
    """Return an expression that names `value` when `owner` is called."""
    if name := builtin_name(value):
        return ast.Name(name, ast.Load())
    where, wanted = naming
    return reference(graph.place(value, wanted, where), owner, now=False)


def _operand(
    graph: Graph, value: object, owner: Target, naming: tuple[str, str]
) -> ast.expr:
    """Return an expression for a bound argument; mutable ones stay one object."""
    where, wanted = naming
    if not isinstance(value, list | dict | set):
        scratch = Target([], where)
        expression = graph.expressions.build(value, scratch, where)
        if expression is not None:
            owner.later += [*scratch.now, *scratch.later]
            return expression
    return callee(graph, value, owner, (where, wanted or "data"))


# -- data ------------------------------------------------------------------------------


def _make_builtin(graph: Graph, value: object, wanted: str, where: str) -> Target:
    expression = ast.Name(builtin_name(value), ast.Load())
    target = DataTarget([wanted or "builtin"], where, expression=expression)
    graph.remember(value, target)
    return target


def _make_data(graph: Graph, value: object, wanted: str, where: str) -> Target:
    """A constant when it is small, else state that travels."""
    target = DataTarget([wanted or "data"], where, value=value)
    graph.remember(value, target)
    target.expression = graph.expressions.build(value, target, where)
    if not target.travels:
        return target
    target.later += graph.discover(value, where)
    if not graph.state_allowed:
        refuse(
            "STO-C010",
            f"{where} is too large or not plain enough for a validator's source",
            "validators hold only constants; compute what they need from the results",
        )
    return target


def _refuse_code(graph: Graph, value: Any, wanted: str, where: str) -> Target:  # noqa: ANN401
    del graph, wanted
    space = value.__globals__ if isinstance(value, types.FunctionType) else {}
    module = space.get("__name__") or getattr(value, "__module__", "") or "a library"
    refuse(
        "STO-C010",
        f"{where} was made by {module} in a way that source cannot repeat",
        "leave that decorator or factory out, or call it inside the function",
    )


# -- which maker -----------------------------------------------------------------------

_CONTEXT_HELPER = contextlib.contextmanager(lambda: iter(())).__code__
_CACHE = type(functools.lru_cache(len))
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


def _is_own_function(value: object, _wanted: str) -> bool:
    """Whether the code itself, not only its label, is the researcher's."""
    if not isinstance(value, types.FunctionType):
        return False
    return not is_library_module(str(value.__globals__.get("__name__", "")))


def _class_cell(value: types.FunctionType) -> object:
    cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
    try:
        return cells["__class__"].cell_contents if "__class__" in cells else None
    except ValueError:  # the class statement is still running
        return None


def _is_class_function(value: object, wanted: str) -> bool:
    if not isinstance(value, types.FunctionType) or not _is_own_function(value, wanted):
        return False
    holder = _class_cell(value)
    return isinstance(holder, type) and vars(holder).get(value.__name__) is value


def _is_context(value: object, _wanted: str) -> bool:
    return (
        isinstance(value, types.FunctionType) and value.__code__ is _CONTEXT_HELPER
    ) and hasattr(value, "__wrapped__")


def _is_own_class(value: object, _wanted: str) -> bool:
    return isinstance(value, type) and not is_library_module(value.__module__)


def _is_bound(value: object, wanted: str) -> bool:
    if not isinstance(value, types.MethodType | types.BuiltinMethodType):
        return False
    holder = value.__self__
    if holder is None or isinstance(holder, types.ModuleType):
        return False
    return library_path(value, wanted) is None


def _is_own_cached(value: object, _wanted: str) -> bool:
    return type(value) is _CACHE and not is_library_module(value.__module__)


def _is_importable(value: object, wanted: str) -> bool:
    return callable(value) and library_path(value, wanted) is not None


_MAKERS: tuple[tuple[Callable[[object, str], bool], Maker], ...] = (
    (lambda value, _: isinstance(value, types.ModuleType), _make_module),
    (_is_class_function, _make_class_function),
    (_is_own_function, _make_function),
    (_is_context, _make_context),
    (_is_own_class, make_class),
    (lambda value, _: isinstance(value, functools.partial), _make_partial),
    (_is_bound, _make_method),
    (_is_own_cached, _make_cached),
    (lambda value, _: bool(builtin_name(value)), _make_builtin),
    (_is_importable, _make_import),
    (lambda value, _: isinstance(value, _CODE), _refuse_code),
)
