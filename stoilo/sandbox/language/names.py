"""Names and attributes: the part of the transformer that every other rests on."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from RestrictedPython.transformer import RestrictingNodeTransformer

from stoilo.core.levels import Level
from stoilo.core.types import Finding
from stoilo.sandbox.language import rules as F  # noqa: N812 - a table of rules
from stoilo.sandbox.language.rules import (
    DEFINABLE_DUNDERS,
    GUARDED_DUNDERS,
    HOOK_DUNDERS,
    MODULE_CONSTANTS,
    PRIVATE_PREFIX,
    READABLE_DUNDERS,
    NameKind,
    attribute_kind,
    is_variable_name,
    mangled,
)

# Who binds which name: just enough scope analysis to leave needless guards out --------


_Function = ast.FunctionDef | ast.Lambda
_NOT_METHODS = frozenset({"staticmethod", "classmethod"})
_CLASS_FIRST = frozenset({"__new__", "__init_subclass__", "__class_getitem__"})


class Scope(msgspec.Struct):
    """One lexical scope while its body is transformed."""

    kind: str  # ``module``, ``class`` or ``function``
    class_name: str | None = None  # the innermost class around, for name mangling
    # Names that the scope's own arguments bind
    parameters: frozenset[str] = frozenset()
    # First parameter of a method when nothing ever rebinds it, else None
    owner: str | None = None
    # Guarded attribute names used on `owner`; what the prelude must check
    checked: set[str] = msgspec.field(default_factory=set)
    needs_check: bool = False  # whether `owner` is written to or `checked` is not empty
    reference: str = ""  # private name of a class that its methods compare types with
    # Variable → private name of the first own type that it was seen with
    seen: dict[str, str] = msgspec.field(default_factory=dict)


def arguments_of(node: _Function) -> list[ast.arg]:
    """Return every parameter of a function or lambda."""
    spec = node.args
    named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    return named + [arg for arg in (spec.vararg, spec.kwarg) if arg is not None]


def bindings(node: ast.AST) -> Iterator[str]:
    """Yield the names that `node` itself binds; parameters bind in a scope of their own."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.AsyncFunctionDef(name=name):
            yield name
        case ast.MatchMapping(rest=name) if name:
            yield name
        case (
            ast.MatchAs(name=name)
            | ast.MatchStar(name=name)
            | ast.ExceptHandler(name=name)
        ) if name:
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names


def bound_names(nodes: list[ast.stmt]) -> frozenset[str]:
    """Return every name bound anywhere below `nodes`, nested scopes included.

    Parameters are left out: they bind in a scope of their own.
    """
    return frozenset(
        name for root in nodes for node in ast.walk(root) for name in bindings(node)
    )


def method_owner(node: ast.FunctionDef) -> str | None:
    """Return the first parameter of a plain method, None if it may be rebound."""
    decorators = {item.id for item in node.decorator_list if isinstance(item, ast.Name)}
    positional = [*node.args.posonlyargs, *node.args.args]
    if not positional or decorators & _NOT_METHODS or node.name in _CLASS_FIRST:
        return None
    owner = positional[0].arg
    return None if owner in bound_names(node.body) else owner


LOAD = ast.Load()
_N = TypeVar("_N", bound=ast.AST)
_NAMES_OF_PYTHON = frozenset(dir(builtins))
_ROUTED = HOOK_DUNDERS | GUARDED_DUNDERS - DEFINABLE_DUNDERS
"""What no own instance gives as it is: see `stoilo.sandbox.language.substitutes`."""


def private_call(name: str, *args: ast.expr) -> ast.Call:
    """Return a call of one of the private functions in the task's builtins."""
    return ast.Call(func=ast.Name(name, ast.Load()), args=list(args), keywords=[])


class NameVisitor(RestrictingNodeTransformer):
    """Checks and rewrites one module for one level; collects `Finding`s."""

    def __init__(self, level: Level, bound: frozenset[str]) -> None:
        super().__init__()
        self.findings: list[Finding] = []
        self._level = level
        self._bound = bound
        self._builtins = frozenset(level.builtins)
        self._has_arrays = "numpy" in level.modules
        self._scopes = [Scope("module")]
        self._finally_depth = 0
        self._lazy_annotations = False
        self._references: list[str] = []

    # How findings are recorded

    def error(self, node: ast.AST, info: str) -> None:
        """Record what the base class refuses (syntax it does not know)."""
        self._refuse(node, F.SYNTAX_KIND, info)

    def _refuse(self, node: ast.AST, rule: F.Rule, message: str) -> None:
        self.findings.append(F.finding_at(node, rule, message))

    def not_allowed(self, node: ast.AST) -> None:
        """Refuse a kind of syntax by name."""
        name = type(node).__name__
        if name.startswith("Async") or name == "Await":
            self._refuse(node, F.ASYNC, "async code is not run in a task")
        else:
            self._refuse(node, F.SYNTAX_KIND, f"{name} is not allowed in a task")

    # Names

    @property
    def _scope(self) -> Scope:
        return self._scopes[-1]

    def check_name(
        self, node: ast.AST, name: str | None, allow_magic_methods: bool = False
    ) -> None:
        """Refuse a reserved or double-underscore name in any binding form."""
        if name is None:
            return
        in_class = self._scope.kind == "class"
        if (allow_magic_methods or in_class) and name in DEFINABLE_DUNDERS:
            if in_class and (allow_magic_methods or name not in HOOK_DUNDERS):
                return
        elif is_variable_name(mangled(name, self._scope.class_name)):
            return
        rule = F.DUNDER if allow_magic_methods else F.NAME
        self._refuse(node, rule, f"the name {name!r} is reserved in a task")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        # Check the name; a builtin that no level hands out is named at once
        if isinstance(node.ctx, ast.Load):
            if node.id in {"__name__", "super"}:
                return node
            self._check_builtin(node)
        reads = isinstance(node.ctx, ast.Load)
        if node.id in MODULE_CONSTANTS and (reads or self._scope.kind == "module"):
            return node
        self.check_name(node, node.id)
        return node

    def _check_builtin(self, node: ast.Name) -> None:
        name = node.id
        if (
            name in _NAMES_OF_PYTHON
            and name not in self._builtins
            and name not in self._bound
            and is_variable_name(name)
        ):
            message = f"{name!r} does not exist at level {self._level.name!r}"
            self._refuse(node, F.BUILTIN, message)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        # Libraries turn some keywords into attributes (``SimpleNamespace(**k)`` and kin).
        self.check_name(node, node.arg)
        return self.node_contents_visit(node)

    # Attributes

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        # Compile to direct access where the name is plain, else guard or refuse
        name = mangled(node.attr, self._scope.class_name)
        if isinstance(node.ctx, ast.Load):
            return self._read_attribute(node, name)
        return self._write_attribute(node, name)

    def _read_attribute(self, node: ast.Attribute, name: str) -> ast.AST:
        if name == "__class__":
            value = self.visit(node.value)
            return ast.copy_location(private_call("_stoilo_type_of", value), node)
        kind = attribute_kind(name)
        if kind is NameKind.REFUSED:
            self._refuse_attribute(node)
        if kind is NameKind.PLAIN:
            return self.node_contents_visit(node)
        if name not in _ROUTED and self._is_checked_owner(node.value, name):
            return node
        return self._guarded_read(node, name)

    def _guarded_read(self, node: ast.Attribute, name: str) -> ast.AST:
        value = self.visit(node.value)
        guarded = private_call("_stoilo_getattr", value, ast.Constant(name))
        if not (isinstance(value, ast.Name) and name.startswith("_")):
            return ast.copy_location(guarded, node)
        if name in GUARDED_DUNDERS:
            return ast.copy_location(guarded, node)
        choice = self._choose(value, node, guarded)
        return ast.copy_location(choice, node)

    def _write_attribute(self, node: ast.Attribute, name: str) -> ast.AST:
        kind = attribute_kind(name)
        if kind is NameKind.REFUSED or name in GUARDED_DUNDERS:
            self._refuse_attribute(node)
        if name not in READABLE_DUNDERS:
            checked = name if kind is NameKind.GUARDED else ""
            if self._is_checked_owner(node.value, checked):
                return node
        value = self.visit(node.value)
        node.value = private_call("_stoilo_write", value, ast.Constant(name))
        if isinstance(value, ast.Name) and name not in READABLE_DUNDERS:
            direct = ast.Name(value.id, ast.Load())
            node.value = self._choose(value, direct, node.value)
        ast.copy_location(node.value, node)
        return node

    def _choose(
        self, value: ast.Name, direct: ast.expr, guarded: ast.Call
    ) -> ast.IfExp:
        """Return `direct` where `value` has the type seen here first, or another own one.

        The guard's first argument tells which type that is.
        """
        reference = self._scope.seen.get(value.id)
        if reference is None:
            reference = self._new_reference("type")
            self._scope.seen[value.id] = reference
        seen = ast.Name(value.id, ast.Load())
        guarded.args[0] = private_call("_stoilo_seen", ast.Constant(reference), seen)
        test = seen_test(value, reference)
        return ast.IfExp(test=test, body=direct, orelse=guarded)

    def _refuse_attribute(self, node: ast.Attribute) -> None:
        message = f"the attribute {node.attr!r} is out of reach for a task"
        self._refuse(node, F.ATTRIBUTE, message)

    def _is_checked_owner(self, value: ast.expr, name: str) -> bool:
        """Whether `value` is a ``self`` whose method tests its type at the start."""
        if not isinstance(value, ast.Name):
            return False
        for scope in reversed(self._scopes):
            if scope.kind != "function":
                continue
            if value.id == scope.owner:
                scope.needs_check = True
                scope.checked |= {name} if name else set()
                return True
            if value.id in scope.parameters:
                return False
        return False

    def _class_reference(self) -> str:
        for scope in reversed(self._scopes):
            if scope.kind == "class":
                scope.reference = scope.reference or self._new_reference("class")
                return scope.reference
        return ""

    def _new_reference(self, kind: str) -> str:
        self._references.append(f"{PRIVATE_PREFIX}{kind}_{len(self._references)}")
        return self._references[-1]

    def _visit_all(self, nodes: Sequence[_N]) -> list[Any]:
        visited: list[Any] = []
        for node in nodes:
            result = self.visit(node)
            if isinstance(result, list):
                visited.extend(result)
            elif result is not None:
                visited.append(result)
        return visited


def own_test(value: ast.Name, reference: str) -> ast.expr:
    """``type(value) is reference or type(value) in own_types``, for use inline.

    Both sides hold classes whose instances have no attribute under a guarded name but
    the task's own; `reference` is empty where no class is around.
    """
    any_own = _test_type(value, ast.In(), "_stoilo_own_types")
    if not reference:
        return any_own
    return ast.BoolOp(ast.Or(), [_test_type(value, ast.Is(), reference), any_own])


def seen_test(value: ast.Name, reference: str) -> ast.expr:
    """``type(value) is reference``, or in the own types once `reference` is bound.

    `reference` is bound to the first own type that `Guards.see_in` was shown there, so
    the common case is one comparison.
    """
    bound = ast.Compare(
        ast.Name(reference, ast.Load()), [ast.IsNot()], [ast.Constant(None)]
    )
    other = _test_type(value, ast.In(), "_stoilo_own_types")
    first = _test_type(value, ast.Is(), reference)
    return ast.BoolOp(ast.Or(), [first, ast.BoolOp(ast.And(), [bound, other])])


def _test_type(value: ast.Name, operator: ast.cmpop, name: str) -> ast.Compare:
    kind = private_call("_stoilo_type", ast.Name(value.id, ast.Load()))
    other = ast.Name(name, ast.Load())
    return ast.Compare(left=kind, ops=[operator], comparators=[other])
