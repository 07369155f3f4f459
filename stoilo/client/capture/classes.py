"""Classes of the researcher: the class statement again, with what it holds today."""

from __future__ import annotations

import abc
import ast
import builtins
import enum
import functools
import types

from stoilo.client.capture.expressions import is_current_literal, is_namedtuple
from stoilo.client.capture.graph import Graph
from stoilo.client.capture.library import is_library_module
from stoilo.client.capture.plain import check_inner_imports, strip_annotations
from stoilo.client.capture.refusals import refuse
from stoilo.client.capture.scopes import Outside
from stoilo.client.capture.targets import ClassTarget, DataTarget, Target
from stoilo.client.capture.texts import file_of, find_class
from stoilo.core.errors import UsageError

# Never honoured on the other side (design §6), so they do not travel
_PICKLE_HOOKS = frozenset(
    {"__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__copyreg__"}
    | {"__getnewargs__", "__getnewargs_ex__", "__del__", "__copy__", "__deepcopy__"}
)


def make_class(graph: Graph, cls: type, wanted: str, where: str) -> Target:
    """Return the target of the researcher's class `cls`."""
    methods = methods_of(cls)
    name = where or cls.__qualname__
    try:
        node = find_class(cls, methods, f"`{cls.__qualname__}`")
    except UsageError:
        if is_namedtuple(cls) and cls.__bases__ == (tuple,):
            return _make_namedtuple(graph, cls, wanted, where)
        raise
    names = [cls.__name__, wanted] if wanted else [cls.__name__]
    target = ClassTarget(names, name, node=node)
    target.file = file_of(methods[0].__code__) if methods else ""
    graph.remember(cls, target)
    _drop_hooks(node)
    strip_annotations(node)
    check_inner_imports(node, name)
    outside = _outside(cls, node, methods)
    _refresh_body(graph, target, cls, node)
    graph.resolve_unit(target, node, outside, f"class {cls.__name__}")
    return target


def methods_of(cls: type) -> list[types.FunctionType]:
    """Return the plain functions written in the class body."""
    found: list[types.FunctionType] = []
    for value in vars(cls).values():
        for function in functions_in(value):
            inside = function.__qualname__.rpartition(".")[0] == cls.__qualname__
            home = str(function.__globals__.get("__name__", ""))
            written = function.__code__.co_filename != "<string>"
            if inside and written and not is_library_module(home):
                found.append(function)
    return found


def functions_in(value: object) -> list[types.FunctionType]:
    """Return the functions that a member of a class is made of."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        parts: list[object] = [value.fget, value.fset, value.fdel]
    elif isinstance(value, functools.cached_property):
        parts = [value.func]
    else:
        parts = [value]
    return [part for part in parts if isinstance(part, types.FunctionType)]


def _drop_hooks(node: ast.ClassDef) -> None:
    kept = [
        statement
        for statement in node.body
        if not (
            isinstance(statement, ast.FunctionDef) and statement.name in _PICKLE_HOOKS
        )
    ]
    node.body = kept or [ast.Pass()]


def _outside(
    cls: type, node: ast.ClassDef, methods: list[types.FunctionType]
) -> Outside:
    """Return where the class's outside names live: module, cells, its real bases."""
    import sys  # noqa: PLC0415 - a lookup

    cells: dict[str, types.CellType] = {}
    for method in methods:
        names = method.__code__.co_freevars
        cells |= dict(zip(names, method.__closure__ or (), strict=True))
    cells.pop("__class__", None)
    module = sys.modules.get(cls.__module__)
    space = methods[0].__globals__ if methods else vars(module) if module else {}
    extra: dict[str, object] = {}
    if len(node.bases) == len(cls.__bases__):
        for base, value in zip(node.bases, cls.__bases__, strict=True):
            known = {*space, *cells, *dir(builtins)}
            if isinstance(base, ast.Name) and base.id not in known:
                extra[base.id] = value
    return Outside(space, cells, extra)


def _refresh_body(
    graph: Graph, target: ClassTarget, cls: type, node: ast.ClassDef
) -> None:
    """Give class attributes their present values and add those set from outside."""
    if type(cls) not in {type, abc.ABCMeta} or issubclass(cls, enum.Enum):
        return
    if is_namedtuple(cls):
        return
    written = _written_attributes(node)
    for name, statement in written.items():
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            _refresh_literal(graph, target, cls, (name, statement))
    if node.decorator_list:
        return
    for name, value in vars(cls).items():
        plain = isinstance(value, types.FunctionType) or not hasattr(value, "__get__")
        if name not in written and not name.startswith("_") and plain:
            expression = _expression(graph, target, value, f"{cls.__name__}.{name}")
            node.body.append(ast.Assign([ast.Name(name, ast.Store())], expression))


def _written_attributes(node: ast.ClassDef) -> dict[str, ast.stmt]:
    written: dict[str, ast.stmt] = {}
    for statement in node.body:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                written.setdefault(inner.id, statement)
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            written[statement.name] = statement
    return written


def _refresh_literal(
    graph: Graph,
    target: ClassTarget,
    cls: type,
    item: tuple[str, ast.Assign | ast.AnnAssign],
) -> None:
    """Replace ``name = literal`` when the class holds another plain value by now."""
    name, statement = item
    missing = object()
    value = vars(cls).get(name, missing)
    if value is missing or statement.value is None or hasattr(value, "__get__"):
        return
    try:
        ast.literal_eval(statement.value)
    except (ValueError, TypeError):
        return
    if not is_current_literal(statement.value, value):
        statement.value = _expression(graph, target, value, f"{cls.__name__}.{name}")


def _expression(graph: Graph, target: Target, value: object, where: str) -> ast.expr:
    expression = graph.expressions.build(value, target, where)
    if expression is None:
        refuse(
            "STO-C010",
            f"class attribute {where} is data that the class statement cannot hold",
            "set it in __init__, or pass it in kwargs",
        )
    return expression


def _make_namedtuple(graph: Graph, cls: type, wanted: str, where: str) -> Target:
    """``collections.namedtuple``: the call again."""
    target = DataTarget([wanted or cls.__name__], where)
    graph.remember(cls, target)
    maker = graph.expressions.library(("collections", "namedtuple"), target, where)
    fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]  # checked
    defaults: dict[str, object] = cls._field_defaults  # type: ignore[attr-defined]  # same
    keywords = []
    if defaults:
        values = _expression(graph, target, list(defaults.values()), cls.__name__)
        keywords.append(ast.keyword("defaults", values))
    names: list[ast.expr] = [ast.Constant(item) for item in fields]
    target.expression = ast.Call(
        maker,
        [ast.Constant(cls.__name__), ast.List(names, ast.Load())],
        keywords,
    )
    return target
