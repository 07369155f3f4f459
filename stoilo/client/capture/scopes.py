"""Which names of a function or class come from outside of it.

Python's own rules (language reference §4.2), applied to one function or class node taken
out of its file: a name is *external* when nothing inside the node binds it for the place
where it is used, or when a ``global`` or outward-pointing ``nonlocal`` says so.
"""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, eq=False)
class External:
    """One place where an outside name is used."""

    name: str  # as written
    node: ast.AST  # the node that holds it
    rename: Callable[[str], None]  # writes another name into the node
    declared_global: bool  # a `global` statement governs it
    stored: bool  # the place binds or deletes the name
    deferred: bool  # it is used only when a function of the node is called


@dataclass(eq=False)
class _Scope:
    kind: str  # function, class, comprehension or outside
    parent: _Scope | None
    bound: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)

    def is_local(self, name: str) -> bool:
        return name in self.bound and name not in self.globals | self.nonlocals


def externals_of(node: ast.AST) -> list[External]:
    """Return every use of an outside name in a function or class node, in text order."""
    walker = _Walker()
    outside = _Scope("outside", None)
    if isinstance(node, ast.ClassDef):
        walker.visit_class(node, outside, deferred=False)
    else:
        walker.visit_function(node, outside)
    return walker.found


def identifiers_of(node: ast.AST) -> set[str]:
    """Return every identifier that occurs anywhere in `node`."""
    names: set[str] = set()
    for inner in ast.walk(node):
        for name, _ in _named_places(inner):
            names.add(name)
    return names


def _named_places(node: ast.AST) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Yield (name, rename) for each plain identifier that `node` itself holds."""
    attribute = {
        ast.Name: "id",
        ast.arg: "arg",
        ast.FunctionDef: "name",
        ast.AsyncFunctionDef: "name",
        ast.ClassDef: "name",
        ast.ExceptHandler: "name",
        ast.MatchAs: "name",
        ast.MatchStar: "name",
        ast.MatchMapping: "rest",
    }.get(type(node))
    if attribute is not None and getattr(node, attribute) is not None:
        yield getattr(node, attribute), lambda new: setattr(node, attribute, new)
    if isinstance(node, ast.alias):
        bound = node.asname or node.name.split(".")[0]
        yield bound, lambda new: setattr(node, "asname", new)
    if isinstance(node, ast.Global | ast.Nonlocal):
        for index, name in enumerate(node.names):
            yield name, _list_setter(node.names, index)


def _list_setter(names: list[str], index: int) -> Callable[[str], None]:
    def rename(new: str) -> None:
        names[index] = new

    return rename


class _Binder(ast.NodeVisitor):
    """Collect what one scope binds, without entering inner scopes."""

    def __init__(self, scope: _Scope) -> None:
        self.scope = scope

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Global):
            self.scope.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            self.scope.nonlocals.update(node.names)
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                self.scope.bound.add(node.id)
        else:
            self.scope.bound.update(name for name, _ in _named_places(node))
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            return
        if isinstance(node, _COMPREHENSIONS):
            self._walrus_targets(node)
            return
        super().generic_visit(node)

    def _walrus_targets(self, node: ast.AST) -> None:
        """An assignment expression inside a comprehension binds outside of it."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Lambda):
                continue
            if isinstance(child, ast.NamedExpr):
                self.scope.bound.add(child.target.id)
            self._walrus_targets(child)


class _Walker:
    """Resolve names scope by scope."""

    def __init__(self) -> None:
        self.found: list[External] = []

    def visit_function(self, node: ast.AST, outer: _Scope) -> None:
        """Visit parameters and body of a function or lambda; not its defaults."""
        scope = _Scope("function", outer)
        arguments: ast.arguments = node.args  # type: ignore[attr-defined]  # by kind
        for argument in _all_arguments(arguments):
            scope.bound.add(argument.arg)
        body = node.body if isinstance(node.body, list) else [node.body]  # type: ignore[attr-defined]  # by kind
        for statement in body:
            _Binder(scope).visit(statement)
        for statement in body:
            self.visit(statement, scope, deferred=True)

    def visit_class(self, node: ast.ClassDef, outer: _Scope, *, deferred: bool) -> None:
        """Visit decorators, bases and body of a class statement."""
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part, outer, deferred=deferred)
        scope = _Scope("class", outer, {"__module__", "__qualname__"})
        for statement in node.body:
            _Binder(scope).visit(statement)
        for statement in node.body:
            self.visit(statement, scope, deferred=deferred)

    def visit(self, node: ast.AST, scope: _Scope, *, deferred: bool) -> None:
        """Visit any other node in `scope`."""
        if isinstance(node, _FUNCTIONS):
            self._visit_inner_function(node, scope, deferred=deferred)
        elif isinstance(node, ast.ClassDef):
            self._note(node, scope, deferred=deferred)
            self.visit_class(node, scope, deferred=deferred)
        elif isinstance(node, _COMPREHENSIONS):
            self._visit_comprehension(node, scope, deferred=deferred)
        else:
            self._note(node, scope, deferred=deferred)
            for child in ast.iter_child_nodes(node):
                self.visit(child, scope, deferred=deferred)

    def _visit_inner_function(
        self, node: ast.AST, scope: _Scope, *, deferred: bool
    ) -> None:
        self._note(node, scope, deferred=deferred)
        arguments: ast.arguments = node.args  # type: ignore[attr-defined]  # by kind
        outer_parts = [
            *getattr(node, "decorator_list", []),
            *arguments.defaults,
            *(default for default in arguments.kw_defaults if default is not None),
        ]
        for part in outer_parts:
            self.visit(part, scope, deferred=deferred)
        self.visit_function(node, scope)

    def _visit_comprehension(
        self, node: ast.AST, scope: _Scope, *, deferred: bool
    ) -> None:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]  # by kind
        self.visit(generators[0].iter, scope, deferred=deferred)
        inner = _Scope("comprehension", scope)
        for generator in generators:
            _Binder(inner).visit(generator.target)
        for index, generator in enumerate(generators):
            if index:
                self.visit(generator.iter, inner, deferred=deferred)
            self.visit(generator.target, inner, deferred=deferred)
            for condition in generator.ifs:
                self.visit(condition, inner, deferred=deferred)
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                self.visit(getattr(node, part), inner, deferred=deferred)

    def _note(self, node: ast.AST, scope: _Scope, *, deferred: bool) -> None:
        for name, rename in _named_places(node):
            if isinstance(node, ast.arg) or name == "__class__":
                continue
            external, declared = _resolve(name, scope)
            if isinstance(node, ast.Nonlocal):
                external = external and not declared
            if external:
                loads = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
                self.found.append(
                    External(name, node, rename, declared, not loads, deferred)
                )


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    extra = [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*named, *extra]


def _resolve(name: str, scope: _Scope) -> tuple[bool, bool]:
    """Return (is external, a global statement says so) for `name` used in `scope`."""
    if name in scope.globals:
        return True, True
    if scope.is_local(name):
        return False, False
    at = scope.parent
    while at is not None:
        if at.kind != "class":
            if name in at.globals:
                return True, True
            if at.is_local(name):
                return False, False
        at = at.parent
    return True, False


MISSING = object()  # The name is bound nowhere outside (it may be a built-in)


@dataclass(frozen=True, eq=False)
class Outside:
    """The surroundings of one unit, as they are now."""

    globals: dict[str, object]  # the module dictionary
    # closure cells by name
    cells: dict[str, types.CellType] = field(default_factory=dict)
    # values known by other ways (bases of a local class), by name
    extra: dict[str, object] = field(default_factory=dict)

    def is_cell(self, external: External) -> bool:
        """Whether the name means a closure cell here."""
        return external.name in self.cells and not external.declared_global

    def value_of(self, external: External) -> object:
        """Return what the name holds now; `MISSING` when nothing does.

        Raises:
            ValueError: the closure cell is still empty.
        """
        if external.name in self.extra:
            return self.extra[external.name]
        if self.is_cell(external):
            return self.cells[external.name].cell_contents
        found = self.globals.get(external.name, MISSING)
        return MISSING if _is_shells_own(external.name, found) else found

    def key_of(self, external: External) -> tuple[object, ...]:
        """Return what makes the variable one and the same across units."""
        if external.name in self.extra:
            return ("extra", id(self.extra[external.name]))
        if self.is_cell(external):
            return ("cell", id(self.cells[external.name]))
        return ("global", id(self.globals), external.name)


def _is_shells_own(name: str, value: object) -> bool:
    """Return whether a notebook's shell put its own built-in there, as IPython's `open`."""
    if not isinstance(value, types.FunctionType) or not hasattr(builtins, name):
        return False
    return str(value.__globals__.get("__name__")).partition(".")[0] == "IPython"
