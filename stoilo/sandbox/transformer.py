"""From source to code that can only reach what the level hands out.

A subclass of RestrictedPython's transformer: unknown syntax stays refused, and every
binding form and attribute is checked. Stock guards that a static check makes needless are
not emitted: plain names, items, iteration and unpacking compile to what CPython would run.
What is left, and where:

    a.__class__           → _stoilo_type_of(a)
    a._x, a.format …      → _stoilo_getattr(a, "_x"), or direct where the type is known
    a.x = v               → _stoilo_write(a, "x").x = v, or direct on a checked ``self``
    import m, from m …    → m = _stoilo_import("m", …): façades, never sys.modules

A method that uses ``self._x`` or assigns ``self.x`` starts with one test of ``type(self)``;
inside it both forms are direct.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any, TypeVar

from RestrictedPython.transformer import RestrictingNodeTransformer

from stoilo.core.errors import PolicyRefusal
from stoilo.core.levels import Level
from stoilo.core.limits import BOUNDS
from stoilo.core.types import Finding
from stoilo.sandbox import findings as F  # noqa: N812 - a table of rules
from stoilo.sandbox.annotations import class_annotation
from stoilo.sandbox.rules import (
    DEFINABLE_DUNDERS,
    LANGUAGE_DIGEST,
    MAX_FINALLY_DEPTH,
    MAX_TREE_DEPTH,
    READABLE_DUNDERS,
    TASK_FILENAME,
    NameKind,
    attribute_kind,
    is_variable_name,
    mangled,
)
from stoilo.sandbox.scopes import Scope, arguments_of, bound_names, method_owner

__all__ = ["LANGUAGE_DIGEST", "check_tree", "compile_source", "restrict_tree"]

LOAD = ast.Load()
_N = TypeVar("_N", bound=ast.AST)
_FUTURES = frozenset({"annotations", "division", "generator_stop", "print_function"})
_NAMES_OF_PYTHON = frozenset(dir(builtins))


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(name, ast.Load()), args=list(args), keywords=[])


class TaskTransformer(RestrictingNodeTransformer):
    """Checks and rewrites one module for one level; collects `Finding`s.

    Attributes:
        findings: everything that refuses the module, in order of the source.
    """

    def __init__(self, level: Level, bound: frozenset[str]) -> None:
        super().__init__()
        self.findings: list[Finding] = []
        self._level = level
        self._bound = bound
        self._builtins = frozenset(level.builtins)
        self._scopes = [Scope("module")]
        self._finally_depth = 0
        self._lazy_annotations = False

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
            if in_class:
                return
        elif is_variable_name(mangled(name, self._scope.class_name)):
            return
        rule = F.DUNDER if allow_magic_methods else F.NAME
        self._refuse(node, rule, f"the name {name!r} is reserved in a task")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Check the name; a builtin that no level hands out is named at once."""
        if isinstance(node.ctx, ast.Load):
            if node.id in {"__name__", "super"}:
                return node
            self._check_builtin(node)
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
        """Check the names."""
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        """Check the names; stock refuses the statement."""
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """Check a keyword argument's name: libraries turn some into attributes."""
        self.check_name(node, node.arg)
        return self.node_contents_visit(node)

    # Attributes

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Compile to direct access where the name is plain, else guard or refuse."""
        name = mangled(node.attr, self._scope.class_name)
        if isinstance(node.ctx, ast.Load):
            return self._read_attribute(node, name)
        return self._write_attribute(node, name)

    def _read_attribute(self, node: ast.Attribute, name: str) -> ast.AST:
        if name == "__class__":
            value = self.visit(node.value)
            return ast.copy_location(_call("_stoilo_type_of", value), node)
        kind = attribute_kind(name)
        if kind is NameKind.REFUSED:
            self._refuse_attribute(node)
        if kind is NameKind.PLAIN or _is_super(node.value, name):
            return self.node_contents_visit(node)
        if self._is_checked_owner(node.value, name):
            return node
        return self._guarded_read(node, name)

    def _guarded_read(self, node: ast.Attribute, name: str) -> ast.AST:
        value = self.visit(node.value)
        guarded = _call("_stoilo_getattr", value, ast.Constant(name))
        if not (isinstance(value, ast.Name) and name.startswith("_")):
            return ast.copy_location(guarded, node)
        if name in DEFINABLE_DUNDERS:
            return ast.copy_location(guarded, node)
        choice = ast.IfExp(test=_is_own(value), body=node, orelse=guarded)
        return ast.copy_location(choice, node)

    def _write_attribute(self, node: ast.Attribute, name: str) -> ast.AST:
        kind = attribute_kind(name)
        if kind is NameKind.REFUSED or name in DEFINABLE_DUNDERS:
            self._refuse_attribute(node)
        if name not in READABLE_DUNDERS:
            checked = name if kind is NameKind.GUARDED else ""
            if self._is_checked_owner(node.value, checked):
                return node
        value = self.visit(node.value)
        node.value = _call("_stoilo_write", value, ast.Constant(name))
        ast.copy_location(node.value, node)
        return node

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

    # Items, iteration, unpacking, calls: what CPython would run

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Allow: items of what a task can reach are data."""
        return self.node_contents_visit(node)

    def guard_iter(self, node: Any) -> ast.AST:  # noqa: ANN401 - For or comprehension
        """Allow iteration; refuse its asynchronous form."""
        if getattr(node, "is_async", 0):
            self._refuse(node.target, F.ASYNC, "async code is not run in a task")
        visited: ast.AST = self.node_contents_visit(node)
        return visited

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Allow on names, items and attributes: in-place semantics are CPython's."""
        return self.node_contents_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Allow; only building a class out of a namespace is refused here already."""
        is_type = isinstance(node.func, ast.Name) and node.func.id == "type"
        if is_type and len(node.args) != 1 and "type" not in self._bound:
            self._refuse(node, F.METACLASS, "type() builds no classes in a task")
        return self.node_contents_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Allow; ``__slots__`` in a class body as literal names."""
        if self._scope.kind == "class" and _assigns_slots(node):
            for name in _literal_strings(node.value):
                if attribute_kind(name) is NameKind.REFUSED or name == "__dict__":
                    self._refuse(node, F.NAME, f"the slot name {name!r} is reserved")
            return node
        return self.node_contents_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        """Allow: targets are checked like any assignment."""
        return self.node_contents_visit(node)

    def visit_Try(self, node: ast.Try) -> ast.AST:
        """Allow; bound how deep ``finally`` blocks nest (each doubles the code)."""
        self._finally_depth += bool(node.finalbody)
        if self._finally_depth > MAX_FINALLY_DEPTH:
            self._refuse(node, F.FINALLY, "try/finally is nested too deeply")
        visited = self.node_contents_visit(node)
        self._finally_depth -= bool(node.finalbody)
        return visited

    # match

    def visit_Match(self, node: ast.AST) -> ast.AST:
        """Allow; names and attributes in patterns are checked below."""
        return self.node_contents_visit(node)

    visit_match_case = visit_Match
    visit_MatchSingleton = visit_Match
    visit_MatchSequence = visit_Match
    visit_MatchOr = visit_Match

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        """Allow constants and plain dotted names."""
        self._check_pattern_value(node.value)
        return node

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> ast.AST:
        """Check what the pattern binds."""
        self.check_name(node, node.name)
        return self.node_contents_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        """Check keys and the name that takes the rest."""
        self.check_name(node, node.rest)
        for key in node.keys:
            self._check_pattern_value(key)
        node.patterns = [self.visit(pattern) for pattern in node.patterns]
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        """Check keyword attributes as attribute access is checked."""
        for name in node.kwd_attrs:
            if (
                attribute_kind(mangled(name, self._scope.class_name))
                is not NameKind.PLAIN
            ):
                message = f"the attribute {name!r} cannot be matched in a task"
                self._refuse(node, F.ATTRIBUTE, message)
        self._check_pattern_value(node.cls)
        node.patterns = [self.visit(pattern) for pattern in node.patterns]
        node.kwd_patterns = [self.visit(pattern) for pattern in node.kwd_patterns]
        return node

    def _check_pattern_value(self, node: ast.expr) -> None:
        """Patterns take no calls, so every attribute in them must be plain."""
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute):
                name = mangled(part.attr, self._scope.class_name)
                if attribute_kind(name) is not NameKind.PLAIN:
                    self._refuse_attribute(part)
            elif isinstance(part, ast.Name):
                self.visit_Name(part)

    # Annotations

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Keep in class bodies what libraries read; elsewhere erase."""
        if self._scope.kind == "class" and node.simple:
            node.annotation = class_annotation(
                node.annotation, lazy=self._lazy_annotations
            )
            return self.node_contents_visit(node)
        if self._scope.kind == "function" and node.simple:
            node.annotation = ast.copy_location(ast.Constant(None), node.annotation)
            return self.node_contents_visit(node)
        target = self.visit(node.target)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        assign = ast.Assign(targets=[target], value=self.visit(node.value))
        return ast.copy_location(assign, node)

    # Definitions

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Check names, erase annotations, test ``self`` once where that pays."""
        self.check_name(node, node.name, allow_magic_methods=True)
        self._check_type_parameters(node)
        owner = method_owner(node) if self._scope.kind == "class" else None
        node.decorator_list = self._visit_all(node.decorator_list)
        self._visit_signature(node)
        node.returns = None
        self._scopes.append(self._function_scope(node, owner))
        node.body = self._visit_all(node.body) or [ast.Pass()]
        self._insert_prelude(node, self._scopes.pop())
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Check names; the body is an expression of its own scope."""
        self._visit_signature(node)
        self._scopes.append(self._function_scope(node, None))
        node.body = self.visit(node.body)
        self._scopes.pop()
        return node

    def _function_scope(
        self, node: ast.FunctionDef | ast.Lambda, owner: str | None
    ) -> Scope:
        names = frozenset(arg.arg for arg in arguments_of(node))
        return Scope("function", self._scope.class_name, names, owner)

    def _visit_signature(self, node: ast.FunctionDef | ast.Lambda) -> None:
        class_name = self._scope.class_name
        for arg in arguments_of(node):
            arg.annotation = None
            if not is_variable_name(mangled(arg.arg, class_name)):
                self._refuse(arg, F.NAME, f"the name {arg.arg!r} is reserved in a task")
        node.args.defaults = self._visit_all(node.args.defaults)
        node.args.kw_defaults = [
            default and self.visit(default) for default in node.args.kw_defaults
        ]

    def _insert_prelude(self, node: ast.FunctionDef, scope: Scope) -> None:
        if not scope.needs_check or scope.owner is None:
            return
        owner = ast.Name(scope.owner, ast.Load())
        names = ast.Tuple([ast.Constant(name) for name in sorted(scope.checked)], LOAD)
        check = ast.Expr(_call("_stoilo_check_self", owner, names))
        test = ast.UnaryOp(ast.Not(), _is_own(owner))
        position = 1 if ast.get_docstring(node, clean=False) is not None else 0
        prelude = ast.If(test=test, body=[check], orelse=[])
        node.body.insert(position, ast.copy_location(prelude, node.body[0]))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Allow classes of any allowed base; no metaclass, no keyword splat."""
        self.check_name(node, node.name)
        self._check_type_parameters(node)
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg == "metaclass":
                self._refuse(keyword, F.METACLASS, "a task's class takes no metaclass")
        node.decorator_list = self._visit_all(node.decorator_list)
        node.bases = self._visit_all(node.bases)
        node.keywords = self._visit_all(node.keywords)
        self._scopes.append(Scope("class", node.name))
        node.body = self._visit_all(node.body) or [ast.Pass()]
        self._scopes.pop()
        return node

    def _check_type_parameters(self, node: ast.AST) -> None:
        """Python 3.12 syntax; a later Python may check sources for us."""
        if getattr(node, "type_params", None):
            self._refuse(node, F.SYNTAX_KIND, "type parameters are not allowed here")

    def _visit_all(self, nodes: Sequence[_N]) -> list[Any]:
        visited: list[Any] = []
        for node in nodes:
            result = self.visit(node)
            if isinstance(result, list):
                visited.extend(result)
            elif result is not None:
                visited.append(result)
        return visited

    def visit_Module(self, node: ast.Module) -> ast.AST:
        """Transform the statements in order."""
        self._lazy_annotations = any(
            isinstance(item, ast.ImportFrom) and item.module == "__future__"
            for item in node.body
        )
        node.body = self._visit_all(node.body)
        return node

    # Imports

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        """Bind façades by a private function."""
        statements: list[ast.stmt] = []
        for alias in node.names:
            self._check_module(alias, alias.name)
            bound = alias.asname or alias.name.partition(".")[0]
            full = ast.Constant(value=bool(alias.asname))
            value = _call("_stoilo_import", ast.Constant(alias.name), full)
            statements.append(self._bind(alias, bound, value))
        return statements

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        """Bind names out of façades."""
        module = node.module or ""
        if node.level:
            self._refuse(node, F.RELATIVE, "a relative import has no package here")
            return []
        if module == "__future__":
            self._check_future(node)
            return []
        known = self._check_module(node, module)
        statements: list[ast.stmt] = []
        for alias in node.names:
            if known:
                self._check_imported_name(alias, module)
            value = _call(
                "_stoilo_import_name", ast.Constant(module), ast.Constant(alias.name)
            )
            statements.append(self._bind(alias, alias.asname or alias.name, value))
        return statements

    def _bind(self, alias: ast.alias, name: str, value: ast.expr) -> ast.stmt:
        self.check_name(alias, name)
        target = ast.Name(name, ast.Store())
        return ast.copy_location(ast.Assign(targets=[target], value=value), alias)

    def _check_future(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name not in _FUTURES:
                message = f"__future__ has nothing called {alias.name!r} for a task"
                self._refuse(alias, F.MODULE_NAME, message)

    def _check_module(self, node: ast.AST, dotted: str) -> bool:
        modules = self._level.modules
        if dotted in modules or any(name.startswith(f"{dotted}.") for name in modules):
            return True
        message = f"module {dotted!r} does not exist at level {self._level.name!r}"
        self._refuse(node, F.MODULE, message)
        return False

    def _check_imported_name(self, alias: ast.alias, module: str) -> None:
        if alias.name == "*":
            self._refuse(alias, F.STAR, "`import *` hides what is used")
            return
        rule = self._level.modules.get(module)
        if rule is not None and alias.name in rule.names:
            return
        prefix = f"{module}.{alias.name}"
        if any(f"{name}.".startswith(f"{prefix}.") for name in self._level.modules):
            return
        message = f"{module!r} has no {alias.name!r} at level {self._level.name!r}"
        self._refuse(alias, F.MODULE_NAME, message)


def _is_own(value: ast.Name) -> ast.Compare:
    """``type(value) in own_types``, cheap enough to stand inline."""
    kind = _call("_stoilo_type", ast.Name(value.id, ast.Load()))
    own = ast.Name("_stoilo_own_types", ast.Load())
    return ast.Compare(left=kind, ops=[ast.In()], comparators=[own])


def _is_super(value: ast.expr, name: str) -> bool:
    match value:
        case ast.Call(func=ast.Name(id="super"), args=args, keywords=[]):
            plain = all(isinstance(argument, ast.Name) for argument in args)
            return plain and len(args) in {0, 2} and name in DEFINABLE_DUNDERS
    return False


def _assigns_slots(node: ast.Assign) -> bool:
    match node.targets:
        case [ast.Name(id="__slots__")]:
            return bool(_literal_strings(node.value)) or _is_empty(node.value)
    return False


def _is_empty(value: ast.expr) -> bool:
    return isinstance(value, ast.Tuple | ast.List) and not value.elts


def _literal_strings(value: ast.expr) -> list[str]:
    """Return the strings of a literal name or sequence of names, [] for all else."""
    elements = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    texts = [
        item.value
        for item in elements
        if isinstance(item, ast.Constant) and type(item.value) is str
    ]
    return texts if len(texts) == len(elements) else []


def _copy_tree(node: _N) -> _N:
    fields: dict[str, Any] = {}
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            fields[name] = _copy_tree(value)
        elif isinstance(value, list):
            fields[name] = [
                _copy_tree(item) if isinstance(item, ast.AST) else item
                for item in value
            ]
        else:
            fields[name] = value
    return ast.copy_location(type(node)(**fields), node)


def _tree_bounds(tree: ast.AST) -> Finding | None:
    """Refuse a tree too large or too deep to visit; never recurses."""
    count, layer = 0, list[ast.AST]([tree])
    for _ in range(MAX_TREE_DEPTH):
        count += len(layer)
        if not layer or count > BOUNDS.ast_nodes:
            break
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
    if count > BOUNDS.ast_nodes:
        return F.finding_at(tree, F.TOO_LARGE, f"over {BOUNDS.ast_nodes} syntax nodes")
    if layer:
        return F.finding_at(layer[0], F.TOO_LARGE, "nested too deeply")
    return None


def restrict_tree(tree: ast.Module, level: Level) -> list[Finding]:
    """Rewrite `tree` in place for `level`; return what refuses it (then do not use it)."""
    if (too_large := _tree_bounds(tree)) is not None:
        return [too_large]
    transformer = TaskTransformer(level, _module_bindings(tree))
    try:
        transformer.visit(tree)
    except RecursionError:
        return [F.finding_at(tree, F.TOO_LARGE, "nested too deeply")]
    ast.fix_missing_locations(tree)
    return sorted(transformer.findings, key=lambda item: (item.line, item.column))


def _module_bindings(tree: ast.Module) -> frozenset[str]:
    parameters = (node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))
    return bound_names(tree.body) | frozenset(parameters)


def check_tree(tree: ast.Module, level: Level) -> list[Finding]:
    """Return every reason why `tree` (untrusted) may not run at `level`; [] if none.

    Pure: `tree` is not changed and nothing of it is executed or compiled.
    """
    if (too_large := _tree_bounds(tree)) is not None:
        return [too_large]
    return restrict_tree(_copy_tree(tree), level)


def compile_source(source: str, level: Level) -> CodeType:
    """Return code for `source` (untrusted) that is safe to load at `level`.

    Raises:
        PolicyRefusal: with the first finding's code, place and hint.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, TASK_FILENAME)
            if refused := restrict_tree(tree, level):
                raise _refusal(refused)
            return compile(tree, TASK_FILENAME, "exec", dont_inherit=True, optimize=0)
    except SyntaxError as error:
        raise PolicyRefusal(
            F.SYNTAX.code,
            f"line {error.lineno or 1}: not valid Python: {error.msg}",
            hint=F.SYNTAX.hint,
        ) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise PolicyRefusal(
            F.TOO_LARGE.code,
            f"the source cannot be parsed: {type(error).__name__}",
            hint=F.TOO_LARGE.hint,
        ) from None


def _refusal(refused: Iterable[Finding]) -> PolicyRefusal:
    first = next(iter(refused))
    message = f"line {first.line}, column {first.column}: {first.message}"
    return PolicyRefusal(first.code, message, hint=first.hint)
