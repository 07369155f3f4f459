"""From one callable to everything it reaches: the graph behind a task module.

Each outside name of the function is resolved in the running interpreter, by value: a
researcher's function or class is captured in turn, a library's is imported, a small
constant becomes a literal, other data travel with the arguments. Nothing is executed.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass

from stoilo.client.capture import classes
from stoilo.client.capture.defaults import rewrite_defaults
from stoilo.client.capture.expressions import (
    MODULE_LITERAL_CHARS,
    Expressions,
    builtin_name,
)
from stoilo.client.capture.library import (
    check_module,
    is_library_module,
    library_path,
)
from stoilo.client.capture.outside import MISSING, Outside
from stoilo.client.capture.own_modules import replace_own_modules
from stoilo.client.capture.plain import (
    as_def,
    check_inner_imports,
    lift_nonlocals,
    strip_annotations,
)
from stoilo.client.capture.refusals import refuse, refuse_value
from stoilo.client.capture.scopes import External, externals_of
from stoilo.client.capture.targets import (
    Binding,
    ClassTarget,
    DataTarget,
    FunctionTarget,
    ImportTarget,
    Mention,
    SentinelTarget,
    Target,
    WrapperTarget,
    reference,
)
from stoilo.client.capture.texts import find_function, place_of

__all__ = ["Graph"]


class Graph:
    """All targets of one module.

    Args:
        literal_chars: longest constant written as source, chars.
        state_allowed: whether data may travel beside the source (validators: no).
    """

    def __init__(
        self, *, literal_chars: int = MODULE_LITERAL_CHARS, state_allowed: bool = True
    ) -> None:
        self.targets: list[Target] = []
        self.bindings: dict[tuple[object, ...], Binding] = {}
        self.undefined: set[str] = set()
        self.uses: list[Use] = []
        self.expressions = Expressions(self.place, literal_chars)
        self.state_allowed = state_allowed
        self._by_id: dict[int, Target] = {}
        self._wrapped: dict[int, Target] = {}
        self.lifted: set[tuple[int, int]] = set()
        self._alive: list[object] = []
        self.discover: Callable[[object, str], list[Target]] = lambda _value, _where: []

    # -- placing values ------------------------------------------------------------

    def place(self, value: object, wanted: str, where: str) -> Target:
        """Return the target that stands for an object, making it when it is new."""
        target = self._by_id.get(id(value))
        if target is not None:
            if wanted and wanted not in target.wanted:
                target.wanted.append(wanted)
            return target
        return self._make(value, wanted, where)

    def place_callable(self, value: object, wanted: str, where: str) -> Target:
        """Return a target that defines `value` in the module itself.

        Arguments may refer only to functions of the task module, so a library's function
        gets a small ``def`` around it.
        """
        known = self._wrapped.get(id(value))
        if known is not None:
            return known
        target = self.place(value, wanted, where)
        if isinstance(target, FunctionTarget | ClassTarget | WrapperTarget):
            return target
        wrapper = WrapperTarget([wanted or _function_name(value)], where)
        self._wrapped[id(value)] = wrapper
        self.targets.append(wrapper)
        named = builtin_name(value)
        callee = (
            ast.Name(named, ast.Load())
            if named
            else reference(target, wrapper, now=False)
        )
        wrapper.call = forwarding_call(callee, [], {})
        return wrapper

    def _remember(self, value: object, target: Target) -> None:
        """Register before descending, so that recursion ends."""
        self._by_id[id(value)] = target
        self._alive.append(value)
        self.targets.append(target)

    def _make(self, value: object, wanted: str, where: str) -> Target:
        match value:
            case types.ModuleType():
                return self._make_module(value, wanted, where)
            case types.FunctionType() if _is_own(value):
                return self._make_function(value, wanted, where)
            case types.FunctionType() if value.__code__ is _CONTEXT_HELPER:
                return self._make_context(value, wanted, where)
            case type() if not is_library_module(value.__module__):
                return self._make_class(value, wanted, where)
            case functools.partial():
                return self._make_partial(value, wanted, where)
            case types.MethodType() | types.BuiltinMethodType() if _is_bound(value):
                if library_path(value, wanted) is None:
                    return self._make_method(value, wanted, where)
        if _is_cached(value) and not is_library_module(value.__module__):
            return self._make_cached(value, wanted, where)
        if builtin_name(value):
            return self._make_constant(value, wanted, where)
        if callable(value) and (path := library_path(value, wanted)):
            return self._make_import(value, path, wanted, where)
        return self._make_data(value, wanted, where)

    def _make_module(self, value: types.ModuleType, wanted: str, where: str) -> Target:
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
        self._remember(value, target)
        return target

    def _make_import(
        self, value: object, path: tuple[str, str], wanted: str, where: str
    ) -> Target:
        check_module(path[0], where)
        names = [wanted or path[1]]
        target = ImportTarget(names, where, module=path[0], attribute=path[1])
        self._remember(value, target)
        return target

    def _make_function(
        self, value: types.FunctionType, wanted: str, where: str
    ) -> FunctionTarget:
        name = value.__name__ if value.__name__.isidentifier() else wanted or "task"
        target = FunctionTarget([wanted or name], where or name)
        self._remember(value, target)
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
        cells = dict(
            zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        )
        rewrite_defaults(self, target, value)
        outside = Outside(value.__globals__, cells, {})
        self.resolve_unit(target, target.node, outside, place_of(value.__code__))
        return target

    def _make_class(self, value: type, wanted: str, where: str) -> Target:
        return classes.make_class(self, value, wanted, where)

    def remember_class(self, value: type, target: Target) -> None:
        """Register a class's target before its body is resolved."""
        self._remember(value, target)

    def _make_cached(self, value: object, wanted: str, where: str) -> Target:
        """``functools.lru_cache``: the decorator again, around the plain function."""
        options = value.cache_parameters()  # type: ignore[attr-defined]  # an lru_cache wrapper
        keywords = [ast.keyword(k, ast.Constant(v)) for k, v in options.items()]

        def decorate(target: Target) -> ast.expr:
            path = ("functools", "lru_cache")
            return ast.Call(self.expressions.library(path, target, where), [], keywords)

        return self._make_decorated(value, (wanted, "uncached", where), decorate)

    def _make_context(
        self, value: types.FunctionType, wanted: str, where: str
    ) -> Target:
        """``contextlib.contextmanager``: the decorator again."""

        def decorate(target: Target) -> ast.expr:
            path = ("contextlib", "contextmanager")
            return self.expressions.library(path, target, where)

        return self._make_decorated(value, (wanted, "generator", where), decorate)

    def _make_decorated(
        self,
        value: object,
        naming: tuple[str, str, str],
        decorate: Callable[[Target], ast.expr],
    ) -> Target:
        wanted, suffix, where = naming
        inner = value.__wrapped__  # type: ignore[attr-defined]  # both kinds have it
        name = wanted or inner.__name__
        target = DataTarget([name], where)
        self._remember(value, target)
        plain = self.place(inner, f"{name}_{suffix}", where)
        decorator = decorate(target)
        target.expression = ast.Call(
            decorator, [reference(plain, target, now=True)], []
        )
        return target

    def _make_method(
        self,
        value: types.MethodType | types.BuiltinMethodType,
        wanted: str,
        where: str,
    ) -> Target:
        name = value.__name__
        holder = value.__self__
        target = WrapperTarget([wanted or name], where)
        self._remember(value, target)
        if isinstance(value, types.MethodType) and getattr(holder, name, 0) != value:
            function = self.callee(value.__func__, target, where)
            parts = [self.callee(holder, target, where)]
            target.call = forwarding_call(function, parts, {})
            return target
        owner = self.callee(holder, target, where, _holder_name(holder))
        method = ast.Attribute(owner, name, ast.Load())
        target.call = forwarding_call(method, [], {})
        return target

    def _make_partial(
        self, value: functools.partial[object], wanted: str, where: str
    ) -> Target:
        target = WrapperTarget([wanted or _function_name(value.func)], where)
        self._remember(value, target)
        function = self.callee(value.func, target, where)
        parts = [self.operand(item, target, where) for item in value.args]
        named = {
            key: self.operand(item, target, where, key)
            for key, item in value.keywords.items()
        }
        target.call = forwarding_call(function, parts, named)
        return target

    def callee(
        self, function: object, owner: Target, where: str, wanted: str = ""
    ) -> ast.expr:
        """Return an expression that names `function` when `owner` is called."""
        if name := builtin_name(function):
            return ast.Name(name, ast.Load())
        return reference(self.place(function, wanted, where), owner, now=False)

    def operand(
        self, value: object, owner: Target, where: str, wanted: str = ""
    ) -> ast.expr:
        """Return an expression for an argument that `owner` uses when it is called."""
        scratch = Target([], where)
        expression = self.expressions.build(value, scratch, where)
        if expression is not None:
            owner.later += [*scratch.now, *scratch.later]
            return expression
        return reference(self.place(value, wanted or "data", where), owner, now=False)

    def _make_constant(self, value: object, wanted: str, where: str) -> Target:
        target = DataTarget([wanted or "constant"], where)
        self._remember(value, target)
        target.expression = self.expressions.build(value, target, where)
        if target.expression is None:
            refuse_value(value, where)
        return target

    def _make_data(self, value: object, wanted: str, where: str) -> Target:
        """A constant when it is small, else state that travels."""
        target = DataTarget([wanted or "data"], where, value=value)
        self._remember(value, target)
        target.expression = self.expressions.build(value, target, where)
        if target.travels:
            target.later += self.discover(value, where)
            self._check_state(where)
        return target

    def _check_state(self, where: str) -> None:
        if not self.state_allowed:
            refuse(
                "STO-C015",
                f"{where} is too large or not plain enough for a validator's source",
                "validators hold only constants; compute what they need from the results",
            )

    @functools.cached_property
    def sentinel(self) -> Target:
        """The stand-in for defaults that travel, made once."""
        target = SentinelTarget(["arrives_with_data"], "")
        self.targets.append(target)
        return target

    # -- outside names -------------------------------------------------------------

    def resolve_unit(
        self, unit: Target, node: ast.AST, outside: Outside, place: str
    ) -> None:
        """Find what each outside name of `node` stands for and note the dependency."""
        replaced = replace_own_modules(self, unit, node, outside, place)
        for external in externals_of(node):
            if id(external.node) in replaced:
                continue
            self.resolve_name(unit, external, outside, place)

    def resolve_name(
        self, unit: Target, external: External, outside: Outside, place: str
    ) -> None:
        """Bind one use of an outside name; built-ins and unknown names stay as written."""
        where = f"`{external.name}` (used in {place})"
        try:
            value = outside.value_of(external)
        except ValueError:
            refuse(
                "STO-C016",
                f"{where} has no value yet",
                "create the task after the variable is assigned",
            )
        if value is MISSING:
            self.undefined.add(external.name)
            return
        if builtin_name(value) == external.name:
            return
        binding = self.bindings.setdefault(
            outside.key_of(external), Binding(external.name, value, where)
        )
        self._alive.append(outside)
        binding.stored |= external.stored
        if binding.initial is None:
            binding.initial = self._place_binding(binding)
        self.uses.append(Use(unit, external, binding))
        if isinstance(binding.initial, ImportTarget):
            self._note_submodules(external, binding.initial, unit)

    def _place_binding(self, binding: Binding) -> Target:
        """Scalars and tuples belong to their variable, other objects to themselves."""
        value = binding.value
        if value is None or type(value) in _ATOMS:
            target = DataTarget([binding.name], binding.where, value=value)
            target.expression = self.expressions.build(value, target, binding.where)
            if not target.travels:
                self.targets.append(target)
                return target
        return self.place(value, binding.name, binding.where)

    @staticmethod
    def _note_submodules(
        external: External, target: ImportTarget, unit: Target
    ) -> None:
        """``import a`` with a use of ``a.b.c``: import the submodule as well."""
        import sys  # noqa: PLC0415 - a lookup

        tree = unit.tree()
        name = target.module
        for parent in ast.walk(tree) if tree is not None else ():
            if isinstance(parent, ast.Attribute) and parent.value is external.node:
                dotted = f"{name}.{parent.attr}"
                if dotted in sys.modules and dotted not in target.submodules:
                    check_module(dotted, target.where)
                    target.submodules.append(dotted)

    # -- closing -------------------------------------------------------------------

    def close(self) -> None:
        """Give assigned variables a statement of their own and link all uses."""
        for binding in list(self.bindings.values()):
            if binding.stored and binding.initial is not None:
                binding.variable = self._variable(binding)
        for use in self.uses:
            node = use.external.node
            if isinstance(node, ast.Nonlocal):
                self.lifted.add((id(node), node.names.index(use.external.name)))
            target = use.binding.target
            if target is not None:
                owner = use.unit.later if use.external.deferred else use.unit.now
                owner.append(target)
                target.mentions.append(
                    Mention(use.external.rename, use.external.name, use.unit)
                )

    def lift_cells(self) -> None:
        """Turn ``nonlocal`` statements of captured cells into ``global``, names done."""
        for target in self.targets:
            if (tree := target.tree()) is not None:
                lift_nonlocals(tree, frozenset(self.lifted))

    def _variable(self, binding: Binding) -> Target:
        initial = binding.initial
        if isinstance(initial, DataTarget):
            if binding.name not in initial.wanted:
                initial.wanted.append(binding.name)
            return initial
        assert initial is not None  # noqa: S101 - checked by the caller
        target = DataTarget([binding.name], binding.where)
        self.targets.append(target)
        initial.wanted.append(f"{binding.name}_initial")
        target.expression = reference(initial, target, now=True)
        return target


@dataclass(frozen=True, eq=False)
class Use:
    """One use of an outside variable by one unit."""

    unit: Target
    external: External
    binding: Binding


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


_ATOMS = frozenset({bool, int, float, complex, str, bytes, tuple})
_CONTEXT_HELPER = contextlib.contextmanager(lambda: iter(())).__code__  # type: ignore[attr-defined]  # a function


def _is_own(value: types.FunctionType) -> bool:
    """Whether the code itself, not only its label, is the researcher's."""
    return not is_library_module(str(value.__globals__.get("__name__", "")))


def _is_bound(value: types.MethodType | types.BuiltinMethodType) -> bool:
    return value.__self__ is not None and not isinstance(
        value.__self__, types.ModuleType
    )


def _is_cached(value: object) -> bool:
    return type(value) is type(functools.lru_cache(len))


def _holder_name(value: object) -> str:
    return type(value).__name__.lower() if not isinstance(value, type) else ""


def _function_name(value: object) -> str:
    name = getattr(value, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else "function"
