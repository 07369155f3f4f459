"""The rest of the transformer: syntax, functions, classes, annotations, imports."""

from __future__ import annotations

import ast
from typing import Any

from stoilo.sandbox.language import rules as F  # noqa: N812 - a table of rules
from stoilo.sandbox.language.names import (
    LOAD,
    NameVisitor,
    Scope,
    arguments_of,
    method_owner,
    own_test,
    private_call,
)
from stoilo.sandbox.language.rules import (
    HOOK_DUNDERS,
    MAX_FINALLY_DEPTH,
    NameKind,
    attribute_kind,
    is_variable_name,
    mangled,
)


class SyntaxVisitor(NameVisitor):
    """Adds what has neither a scope of its own nor an import in it."""

    # Items, iteration, unpacking, calls: what CPython would run

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        # Items of what a task can reach are data
        return self.node_contents_visit(node)

    def guard_iter(self, node: Any) -> ast.AST:
        """Allow iteration; refuse its asynchronous form."""
        if getattr(node, "is_async", 0):
            self._refuse(node.target, F.ASYNC, "async code is not run in a task")
        visited: ast.AST = self.node_contents_visit(node)
        return visited

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        # In-place semantics are CPython's; RestrictedPython's own forms would change them.
        return self.node_contents_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        # Only building a class out of a namespace is refused here already
        is_type = isinstance(node.func, ast.Name) and node.func.id == "type"
        if is_type and len(node.args) != 1 and "type" not in self._bound:
            self._refuse(node, F.METACLASS, "type() builds no classes in a task")
        names = {keyword.arg for keyword in node.keywords}
        visited = self.node_contents_visit(node)
        if None in names or (self._has_arrays and "where" in names):
            node.args.insert(0, node.func)
            node.func = ast.copy_location(
                ast.Name("_stoilo_masked", ast.Load()), node.func
            )
        return visited

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        # ``__slots__`` in a class body as literal names
        if self._scope.kind == "class" and _assigns_slots(node):
            for name in _literal_strings(node.value):
                if attribute_kind(name) is NameKind.REFUSED or name == "__dict__":
                    self._refuse(node, F.NAME, f"the slot name {name!r} is reserved")
            return node
        return self.node_contents_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        # Targets are checked like any assignment
        return self.node_contents_visit(node)

    def visit_Try(self, node: ast.Try | ast.TryStar) -> ast.AST:
        # Bound how deep ``finally`` blocks nest (each doubles the code)
        self._finally_depth += bool(node.finalbody)
        if self._finally_depth > MAX_FINALLY_DEPTH:
            self._refuse(node, F.FINALLY, "try/finally is nested too deeply")
        visited = self.node_contents_visit(node)
        self._finally_depth -= bool(node.finalbody)
        return visited

    def visit_TryStar(self, node: Any) -> ast.AST:
        # Each clause looks at the group before the interpreter splits it (CVE-2025-22153).
        visited = self.visit_Try(node)
        for handler in node.handlers:
            kind = handler.type or ast.Constant(None)
            handler.type = ast.copy_location(private_call("_stoilo_group", kind), kind)
        return visited

    # match

    def visit_Match(self, node: ast.AST) -> ast.AST:
        # Names and attributes in patterns are checked below
        return self.node_contents_visit(node)

    visit_match_case = visit_Match
    visit_MatchSingleton = visit_Match
    visit_MatchSequence = visit_Match
    visit_MatchOr = visit_Match

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        self._check_pattern_value(node.value)
        return node

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> ast.AST:
        self.check_name(node, node.name)
        return self.node_contents_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        self.check_name(node, node.rest)
        for key in node.keys:
            self._check_pattern_value(key)
        node.patterns = [self.visit(pattern) for pattern in node.patterns]
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        # Check keyword attributes as attribute access is checked
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
        # Patterns take no calls, so no guard can stand in them: every attribute must be plain.
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute):
                name = mangled(part.attr, self._scope.class_name)
                if attribute_kind(name) is not NameKind.PLAIN:
                    self._refuse_attribute(part)
            elif isinstance(part, ast.Name):
                self.visit_Name(part)


def _assigns_slots(node: ast.Assign) -> bool:
    match node.targets:
        case [ast.Name(id="__slots__")]:
            return bool(_literal_strings(node.value)) or _is_empty(node.value)
    return False


def _is_empty(value: ast.expr) -> bool:
    return isinstance(value, ast.Tuple | ast.List) and not value.elts


def _literal_strings(value: ast.expr) -> list[str]:
    elements = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    texts = [
        item.value
        for item in elements
        if isinstance(item, ast.Constant) and type(item.value) is str
    ]
    return texts if len(texts) == len(elements) else []


# Annotations that libraries read (dataclasses, NamedTuple), made harmless -------------
#
# Function annotations are erased: nothing needs them. In class bodies an annotation stays
# an expression under the ordinary rules, unless it holds text, which libraries would
# evaluate, or is lazy (``from __future__ import annotations``), when it may not resolve.
# Then only the marker that changes what a dataclass does is kept.


_MARKERS = frozenset({"ClassVar", "InitVar", "KW_ONLY"})


def class_annotation(annotation: ast.expr, *, lazy: bool) -> ast.expr:
    """Return what stands for `annotation` in a class body."""
    if not lazy and not _holds_text(annotation):
        return annotation
    wrapper = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    if _marker(wrapper) in _MARKERS:
        return wrapper
    return ast.copy_location(ast.Constant(None), annotation)


def _holds_text(annotation: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        for node in ast.walk(annotation)
    )


def _marker(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


# Functions, classes, annotations and imports: what opens scopes and binds façades -----


_FUTURES = frozenset({"annotations", "division", "generator_stop", "print_function"})


class TaskTransformer(SyntaxVisitor):
    """The whole transformer of one module for one level."""

    # Annotations

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # Keep in class bodies what libraries read; elsewhere erase
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
        # One test of ``self``'s type at the start is cheaper than a guard at each attribute.
        self.check_name(node, node.name, allow_magic_methods=True)
        self._check_type_parameters(node)
        owner = method_owner(node) if self._scope.kind == "class" else None
        node.decorator_list = self._visit_all(node.decorator_list)
        if node.name in HOOK_DUNDERS:
            hook = private_call("_stoilo_hook", ast.Constant(node.name))
            node.decorator_list.insert(0, ast.copy_location(hook, node))
        self._visit_signature(node)
        node.returns = None
        self._scopes.append(self._function_scope(node, owner))
        node.body = self._visit_all(node.body) or [ast.Pass()]
        self._insert_prelude(node, self._scopes.pop())
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
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
        check = ast.Expr(private_call("_stoilo_check_self", owner, names))
        test = ast.UnaryOp(ast.Not(), own_test(owner, self._class_reference()))
        position = 1 if ast.get_docstring(node, clean=False) is not None else 0
        prelude = ast.If(test=test, body=[check], orelse=[])
        node.body.insert(position, ast.copy_location(prelude, node.body[0]))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        # A metaclass sees every class being made; a splat of keywords could hide one.
        self.check_name(node, node.name)
        self._check_type_parameters(node)
        for keyword in node.keywords:
            named = keyword.arg == "metaclass" and not _is_abc_meta(keyword.value)
            if keyword.arg is None or named:
                message = "the only metaclass of a task's class is abc.ABCMeta"
                self._refuse(keyword, F.METACLASS, message)
        node.decorator_list = self._visit_all(node.decorator_list)
        node.bases = self._visit_all(node.bases)
        node.keywords = self._visit_all(node.keywords)
        self._scopes.append(Scope("class", node.name))
        node.body = self._visit_all(node.body) or [ast.Pass()]
        if reference := self._scopes.pop().reference:
            known = private_call("_stoilo_known", ast.Constant(reference))
            node.decorator_list.append(ast.copy_location(known, node))
        return node

    def _check_type_parameters(self, node: ast.AST) -> None:
        # Python 3.12 syntax; the gate may run under a later Python than the jail.
        if getattr(node, "type_params", None):
            self._refuse(node, F.SYNTAX_KIND, "type parameters are not allowed here")

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self._lazy_annotations = any(
            isinstance(item, ast.ImportFrom) and item.module == "__future__"
            for item in node.body
        )
        node.body = self._visit_all(node.body)
        self._bind_references(node)
        return node

    def _bind_references(self, node: ast.Module) -> None:
        # A method may run before its class is bound: every private class name begins as None.
        if not self._references:
            return
        targets: list[ast.expr] = [
            ast.Name(name, ast.Store()) for name in self._references
        ]
        unbound = ast.Assign(targets=targets, value=ast.Constant(None))
        position = 1 if ast.get_docstring(node, clean=False) is not None else 0
        node.body.insert(position, ast.copy_location(unbound, node.body[0]))

    # Imports

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for alias in node.names:
            self._check_module(alias, alias.name)
            bound = alias.asname or alias.name.partition(".")[0]
            full = ast.Constant(value=bool(alias.asname))
            value = private_call("_stoilo_import", ast.Constant(alias.name), full)
            statements.append(self._bind(alias, bound, value))
        return statements

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
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
            value = private_call(
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


def _is_abc_meta(value: ast.expr) -> bool:
    # Whether `value` is spelled as the one metaclass; `Guards.build_class` asks if it is
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "ABCMeta"
    return False
