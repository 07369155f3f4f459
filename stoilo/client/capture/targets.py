"""The module-level statements that a captured function needs, before they have names."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class Mention:
    """One place that will hold a target's final name."""

    rename: Callable[[str], None]  # writes the name there
    # the name as the researcher wrote it; empty when the place is ours
    original: str = ""
    # the function or class around the place; None when it is ours
    unit: Target | None = None


@dataclass(eq=False)
class Target:
    """One statement of the module to be."""

    wanted: list[str]  # names it would like to have, best first
    where: str  # how messages call it
    # what must stand above it, because running the statement uses it
    now: list[Target] = field(default_factory=list)
    # what its functions use when they are called
    later: list[Target] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)  # every place that names it
    name: str = ""  # its final name
    file: str = ""  # name of the file or cell that it was written in, without folders

    def statements(self) -> list[ast.stmt]:
        """Return the statements, names filled in."""
        return []

    def tree(self) -> ast.AST | None:
        """Return the researcher's own node, whose identifiers must not be shadowed."""
        return None


@dataclass(eq=False)
class Binding:
    """One outside variable: a global of one module, or one closure cell."""

    name: str  # as written where it was first met
    value: object  # what it holds now
    where: str
    initial: Target | None = None  # the target that stands for the value
    stored: bool = False  # captured code assigns it, so it needs a variable of its own
    variable: Target | None = None  # that variable's target

    @property
    def target(self) -> Target | None:
        """The target that uses of this variable name; None leaves them as written."""
        return self.variable or self.initial


@dataclass(eq=False)
class FunctionTarget(Target):
    """A function, its decorators already applied and its defaults made explicit."""

    node: ast.FunctionDef | None = None

    def statements(self) -> list[ast.stmt]:
        """Return the ``def``."""
        assert self.node is not None  # noqa: S101 - set before emission
        self.node.name = self.name
        return [self.node]

    def tree(self) -> ast.AST | None:
        """Return the function's node."""
        return self.node


@dataclass(eq=False)
class ClassTarget(Target):
    """A class statement."""

    node: ast.ClassDef | None = None

    def statements(self) -> list[ast.stmt]:
        """Return the ``class``."""
        assert self.node is not None  # noqa: S101 - set before emission
        self.node.name = self.name
        return [self.node]

    def tree(self) -> ast.AST | None:
        """Return the class's node."""
        return self.node


@dataclass(eq=False)
class ImportTarget(Target):
    """``import module as name`` or ``from module import attribute as name``."""

    module: str = ""
    attribute: str = ""
    submodules: list[str] = field(default_factory=list)

    def statements(self) -> list[ast.stmt]:
        """Return the import statements."""
        if self.attribute:
            alias = ast.alias(self.attribute, self._alias(self.attribute))
            return [ast.ImportFrom(self.module, [alias], 0)]
        more = self.submodules if self.name == self.module else []
        names = [ast.alias(self.module, self._alias(self.module))]
        names += [ast.alias(name, None) for name in more]
        return [ast.Import([name]) for name in names]

    def _alias(self, name: str) -> str | None:
        return None if name == self.name else self.name


@dataclass(eq=False)
class DataTarget(Target):
    """``name = expression``, or a placeholder for a value that travels as data."""

    # the constant as source; None when the value travels
    expression: ast.expr | None = None
    # the value that travels; the entry binds it before it calls the task
    value: object = None

    @property
    def travels(self) -> bool:
        """Whether the value is bound by the entry."""
        return self.expression is None

    def statements(self) -> list[ast.stmt]:
        """Return the assignment."""
        value = self.expression or ast.Constant(None)
        return [ast.Assign([ast.Name(self.name, ast.Store())], value)]


@dataclass(eq=False)
class SentinelTarget(Target):
    """The default of a parameter whose real default travels as data."""

    def statements(self) -> list[ast.stmt]:
        """Return a function that is only ever compared by identity."""
        text = "Stand for a default value that travels with the task's data."
        nothing = ast.arguments([], [], None, [], [], None, [])
        body: list[ast.stmt] = [ast.Expr(ast.Constant(text))]
        return [ast.FunctionDef(self.name, nothing, body, [])]


@dataclass(eq=False)
class WrapperTarget(Target):
    """``def name(*args, **kwargs): return <call>``: a method, partial or library name."""

    call: ast.expr | None = None

    def statements(self) -> list[ast.stmt]:
        """Return the ``def``."""
        assert self.call is not None  # noqa: S101 - set before emission
        arguments = ast.arguments(
            [], [], ast.arg("args"), [], [], ast.arg("kwargs"), []
        )
        return [ast.FunctionDef(self.name, arguments, [ast.Return(self.call)], [])]


def reference(target: Target, owner: Target, *, now: bool) -> ast.Name:
    """Return a name node for `target` inside a statement of `owner`."""
    node = ast.Name("", ast.Load())
    target.mentions.append(Mention(lambda new: setattr(node, "id", new)))
    (owner.now if now else owner.later).append(target)
    return node


def forwarding_call(
    function: ast.expr, parts: list[ast.expr], named: dict[str, ast.expr]
) -> ast.expr:
    """Return ``function(*parts, *args, **{**named, **kwargs})``."""
    rest = ast.Starred(ast.Name("args", ast.Load()), ast.Load())
    kwargs: ast.expr = ast.Name("kwargs", ast.Load())
    if named:
        keys: list[ast.expr | None] = [ast.Constant(key) for key in named]
        kwargs = ast.Dict([*keys, None], [*named.values(), kwargs])
    return ast.Call(function, [*parts, rest], [ast.keyword(None, kwargs)])
