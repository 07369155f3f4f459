"""Where a function or class was written: source text, its tree, the exact node.

Works for files, IPython cells, doctests and anything else that `linecache` can show.
A function is found by its code object, not by its name, so several lambdas on one line
are told apart by the positions the compiler recorded (PEP 657).
"""

from __future__ import annotations

import ast
import copy
import functools
import linecache
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from stoilo.client.capture.refusals import refuse
from stoilo.core.errors import UsageError

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Span = tuple[int, int, int, int]
AnyNode = TypeVar("AnyNode", bound=ast.AST)


@dataclass(frozen=True, eq=False)
class SourceText:
    """One parsed file or cell."""

    filename: str  # as the code objects name it
    tree: ast.Module  # the parsed module; treat as read-only
    parents: dict[ast.AST, ast.AST]  # node → the node that holds it
    # every code object that compiling the text gives, for staleness checks
    codes: frozenset[types.CodeType]
    # first line → functions and lambdas that begin there
    functions: dict[int, list[FunctionNode]]


@functools.lru_cache(maxsize=256)
def _parse(filename: str, text: str) -> SourceText:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when the code was loaded
        tree = ast.parse(text)
        module = compile(text, filename, "exec", dont_inherit=True, flags=_CELL_FLAGS)
    parents = {
        child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
    }
    functions: dict[int, list[FunctionNode]] = {}
    for node in parents:
        if isinstance(node, FunctionNode):
            functions.setdefault(_first_line(node), []).append(node)
    codes = frozenset(_nested(module))
    if not Path(filename).is_file():
        codes |= frozenset(_statement_codes(tree, filename))
    return SourceText(filename, tree, parents, codes, functions)


def _statement_codes(tree: ast.Module, filename: str) -> Iterator[types.CodeType]:
    """Yield what compiling statement by statement gives, as IPython does with a cell.

    It differs: CPython calls ``math.sin`` in another way where it sees ``import math``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for statement in tree.body:
            alone = ast.Module([statement], [])
            yield from _nested(
                compile(alone, filename, "exec", dont_inherit=True, flags=_CELL_FLAGS)
            )


def _first_line(node: FunctionNode) -> int:
    """Return the line a code object names: that of the first decorator, if any."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(item.lineno for item in decorators)])


_CELL_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # A notebook cell may await at its top


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _load(filename: str, module_globals: dict[str, object]) -> SourceText | None:
    lines = linecache.getlines(filename, module_globals)
    if not lines:
        return None
    text = "".join(lines).removeprefix("\ufeff")
    try:
        return _parse(filename, _normal(text))
    except (SyntaxError, ValueError):
        return _parse_cell(filename, text)


def _normal(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _ipython() -> Any:  # noqa: ANN401 - a library's
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def _parse_cell(filename: str, text: str) -> SourceText | None:
    """Parse an IPython cell as IPython does, magics and all."""
    shell = _ipython()
    if shell is None:
        return None
    try:
        return _parse(filename, _normal(shell.transform_cell(text)))
    except (SyntaxError, ValueError):
        return None


def place_of(code: types.CodeType) -> str:
    """Return ``file.py:12`` for messages; never the whole path."""
    return f"{file_of(code)}:{code.co_firstlineno}"


def file_of(code: types.CodeType) -> str:
    """Return what its writer calls the file: ``file.py`` or ``In[3]``, no whole path."""
    compiler = getattr(_ipython(), "compile", None)
    name_cell = getattr(compiler, "format_code_name", lambda _name: None)
    cell = name_cell(code.co_filename)  # ("Cell", "In[3]")
    return str(cell[1]) if cell else Path(code.co_filename).name or code.co_filename


def read_text(func: types.FunctionType, name: str) -> SourceText:
    """Return the source text that `func` was compiled from.

    Raises:
        UsageError: ``STO-C001`` no source, it changed since.
    """
    code = func.__code__
    text = _load(code.co_filename, func.__globals__)
    if text is None or not _is_current(text, code):
        linecache.checkcache(code.co_filename)
        text = _load(code.co_filename, func.__globals__)
    if text is None:
        refuse(
            "STO-C001",
            f"the source of {name} cannot be found ({place_of(code)})",
            "put the function into a file or a notebook cell; what was typed at a "
            "plain prompt, piped in or made by exec() has no source to send",
        )
    if not _is_current(text, code):
        refuse(
            "STO-C001",
            f"the source of {name} has changed since it was loaded ({place_of(code)})",
            "reload the module or run the cell again, so that what travels is what "
            "you have tried",
        )
    return text


def _is_current(text: SourceText, code: types.CodeType) -> bool:
    """Whether compiling the text again gives this very code.

    Test runners rewrite ``assert``: such code (marked by their helper names) is compared
    by name and parameters only.
    """
    if code in text.codes:
        return True
    if not any("@py" in name for name in _all_names(code)):
        return False
    outline = _outline(code)
    return any(_outline(other) == outline for other in text.codes)


def _all_names(code: types.CodeType) -> Iterator[str]:
    for inner in _nested(code):
        yield from inner.co_names
        yield from inner.co_varnames


def _outline(code: types.CodeType) -> tuple[object, ...]:
    parameters = code.co_argcount + code.co_kwonlyargcount
    return (code.co_name, code.co_firstlineno, code.co_varnames[:parameters])


def find_function(func: types.FunctionType, name: str) -> FunctionNode:
    """Return a copy of the node that `func` was compiled from, private names mangled.

    Raises:
        UsageError: ``STO-C001`` as `read_text`, ambiguous.
    """
    text = read_text(func, name)
    code = func.__code__
    found = _candidates(text, code)
    if len(found) > 1:
        found = _by_positions(found, code)
    if len(found) != 1:
        refuse(
            "STO-C001",
            f"{name} cannot be told from its neighbours on line {code.co_firstlineno}",
            "write one lambda a line, or a def; Python was started without code "
            "positions (-X no_debug_ranges)",
        )
    node = copy.deepcopy(found[0])
    owner = _enclosing_class(text, found[0])
    return mangle(node, owner) if owner else node


def functions_at(func: types.FunctionType) -> list[FunctionNode]:
    """Return every function that begins on the line of `func`; read-only.

    Raises:
        UsageError: as `read_text`.
    """
    text = read_text(func, func.__name__)
    return text.functions.get(func.__code__.co_firstlineno, [])


def _candidates(text: SourceText, code: types.CodeType) -> list[FunctionNode]:
    """Return the nodes that begin where `code` says and look like it."""
    found = text.functions.get(code.co_firstlineno, [])
    return [node for node in found if _could_be(node, code)]


def _could_be(node: FunctionNode, code: types.CodeType) -> bool:
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    return (name == code.co_name or name.startswith("__")) and (
        len(_parameters(node)) == code.co_argcount + code.co_kwonlyargcount
    )


def _parameters(node: FunctionNode) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _by_positions(
    found: list[FunctionNode], code: types.CodeType
) -> list[FunctionNode]:
    """Keep the node with the smallest body that holds every recorded position."""
    spans: list[Span] = []
    for line, end_line, column, end_column in code.co_positions():
        if line is None or end_line is None or column is None or end_column is None:
            continue
        if (line, column) != (end_line, end_column):
            spans.append((line, column, end_line, end_column))
    if not spans:
        return found
    holders = [node for node in found if all(_holds(_body(node), s) for s in spans)]
    return sorted(holders, key=_extent)[:1]


def _body(node: FunctionNode) -> Span:
    if isinstance(node, ast.Lambda):
        inner = node.body
        return (
            inner.lineno,
            inner.col_offset,
            inner.end_lineno or 0,
            inner.end_col_offset or 0,
        )
    first, last = node.body[0], node.body[-1]
    return (
        first.lineno,
        first.col_offset,
        last.end_lineno or 0,
        last.end_col_offset or 0,
    )


def _holds(outer: Span, inner: Span) -> bool:
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]


def _extent(node: FunctionNode) -> tuple[int, int]:
    line, column, end_line, end_column = _body(node)
    return (end_line - line, end_column - column)


def _enclosing_class(text: SourceText, node: ast.AST) -> str:
    at = text.parents.get(node)
    while at is not None and not isinstance(at, ast.ClassDef):
        at = text.parents.get(at)
    return at.name if isinstance(at, ast.ClassDef) else ""


def find_class(cls: type, methods: list[types.FunctionType], name: str) -> ast.ClassDef:
    """Return a copy of the class statement of `cls`, private names mangled.

    The place is taken from a method's code where there is one, because names repeat;
    else the newest text of the module or notebook that defines the qualified name.

    Raises:
        UsageError: ``STO-C001`` when no text defines it.
    """
    for method in methods:
        text = read_text(method, name)
        for node in _candidates(text, method.__code__):
            holder = text.parents.get(node)
            if isinstance(holder, ast.ClassDef) and holder.name == cls.__name__:
                return _copy_class(text, holder)
    for text in _texts_of_module(cls.__module__):
        if holder := _named_class(text, cls.__qualname__):
            return _copy_class(text, holder)
    raise UsageError(
        "STO-C001",
        f"the source of class {name} cannot be found",
        hint="define the class by a class statement in a file or a notebook cell",
    )


def _copy_class(text: SourceText, node: ast.ClassDef) -> ast.ClassDef:
    made = mangle(copy.deepcopy(node), _enclosing_class(text, node))
    assert isinstance(made, ast.ClassDef)  # noqa: S101 - a class stays one
    return made


def _texts_of_module(module: str) -> Iterator[SourceText]:
    """Yield the module's file, then notebook cells, newest first."""
    import sys  # noqa: PLC0415 - a lookup, not a dependency

    loaded = sys.modules.get(module)
    filename = getattr(loaded, "__file__", None)
    if filename and (text := _load(filename, vars(loaded))):
        yield text
    if module == "__main__":
        for key in reversed(list(linecache.cache)):
            if (key.startswith("<") or "ipykernel_" in key) and (
                text := _load(key, {})
            ):
                yield text


def _named_class(text: SourceText, qualname: str) -> ast.ClassDef | None:
    wanted = qualname.replace("<locals>.", "").split(".")
    found = [
        node
        for node in ast.walk(text.tree)
        if isinstance(node, ast.ClassDef) and _path(text, node) == wanted
    ]
    return found[-1] if found else None


def _path(text: SourceText, node: ast.AST) -> list[str]:
    names: list[str] = []
    at: ast.AST | None = node
    while at is not None:
        if isinstance(at, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.insert(0, at.name)
        at = text.parents.get(at)
    return names


class _Mangler(ast.NodeTransformer):
    """Spell private names (``__x`` in a class) as Python itself does: ``_Class__x``."""

    def __init__(self, owner: str) -> None:
        self.owner = owner.lstrip("_")

    def _mangled(self, name: str) -> str:
        private = name.startswith("__") and not name.endswith("__") and "." not in name
        return f"_{self.owner}{name}" if private and self.owner else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._mangled(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self._mangled(node.attr)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._mangled(node.arg)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._mangled(node.name)
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self._mangled(name) for name in node.names]
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [self._mangled(name) for name in node.names]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self.owner = self.owner, node.name.lstrip("_")
        node.body = [self.visit(statement) for statement in node.body]
        self.owner = outer
        return node


def mangle(node: AnyNode, owner: str) -> AnyNode:
    """Return `node` with private names spelled out, `owner` being the class around."""
    return _Mangler(owner).visit(node)  # type: ignore[no-any-return]  # same node back
