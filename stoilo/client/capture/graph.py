"""From one callable to everything it reaches: the graph behind a task module.

Each outside name of the function is resolved in the running interpreter, by value: a
researcher's function or class is captured in turn, a library's is imported, a small
constant becomes a literal, other data travel with the arguments. Nothing is executed.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoilo.client.capture.expressions import (
    MODULE_LITERAL_CHARS,
    Expressions,
    builtin_name,
)
from stoilo.client.capture.library import check_module, is_library_module
from stoilo.client.capture.plain import lift_nonlocals
from stoilo.client.capture.refusals import refuse
from stoilo.client.capture.scopes import MISSING, External, Outside, externals_of
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
    forwarding_call,
    reference,
)
from stoilo.core.errors import InternalError

# Binds one use of an outside name, as `Graph.resolve_name` does
Resolve = Callable[[Target, External, Outside, str], None]


class _Replacer(ast.NodeTransformer):
    """Put a plain name where an attribute of an own module stands."""

    def __init__(self, roots: dict[int, tuple[External, types.ModuleType]]) -> None:
        self.roots = roots
        self.made: list[tuple[ast.Name, str, types.ModuleType, External]] = []

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        chain = [node]
        while isinstance(chain[-1].value, ast.Attribute):
            chain.append(chain[-1].value)
        root = self.roots.get(id(chain[-1].value))
        if root is None:
            return self.generic_visit(node)
        external, module = root
        links = list(reversed(chain))
        for index, link in enumerate(links):
            value = getattr(module, link.attr, None)
            if isinstance(value, types.ModuleType) and not is_library_module(
                value.__name__
            ):
                module = value
                continue
            if link is not node and isinstance(links[index + 1].value, ast.Attribute):
                links[index + 1].value = self._name(link, module, external)
                return node
            return self._name(link, module, external)
        return node

    def _name(
        self, link: ast.Attribute, module: types.ModuleType, external: External
    ) -> ast.Name:
        name = ast.Name(link.attr, link.ctx)
        self.made.append((name, link.attr, module, external))
        return name


def _line_of(external: External, place: str) -> str:
    """Return `place`, the first line of a function (``file.py:12``), at the use itself."""
    file, _, first = place.rpartition(":")
    line = getattr(external.node, "lineno", 0)
    return f"{file}:{line}" if first.isdigit() and line >= int(first) else place


def replace_own_modules(
    resolve: Resolve, unit: Target, node: ast.AST, outside: Outside, place: str
) -> frozenset[int]:
    """Rewrite ``module.name`` in place, own modules only; returns the handled nodes."""
    roots: dict[int, tuple[External, types.ModuleType]] = {}
    for external in externals_of(node):
        value = _value(outside, external)
        if isinstance(value, types.ModuleType) and not is_library_module(
            value.__name__
        ):
            roots[id(external.node)] = (external, value)
    if not roots:
        return frozenset()
    replacer = _Replacer(roots)
    replacer.visit(node)
    for name, attribute, module, external in replacer.made:
        _bind_attribute(resolve, unit, (name, attribute, module, external), place)
    return frozenset(id(item[0]) for item in replacer.made)


def _bind_attribute(
    resolve: Resolve,
    unit: Target,
    made: tuple[ast.Name, str, types.ModuleType, External],
    place: str,
) -> None:
    name, attribute, module, root = made
    dotted = f"{module.__name__}.{attribute}"
    if not hasattr(module, attribute):
        refuse(
            "STO-C013",
            f"`{dotted}` (used in {_line_of(root, place)}) does not exist",
            "check the name, or reload the module",
        )
    if not isinstance(name.ctx, ast.Load):
        refuse(
            "STO-C013",
            f"`{dotted}` (used in {_line_of(root, place)}) is assigned from outside its "
            "module",
            "write a function in that module which assigns it",
        )
    external = External(
        attribute,
        name,
        lambda new: setattr(name, "id", new),
        declared_global=True,
        stored=False,
        deferred=root.deferred,
    )
    resolve(unit, external, Outside(vars(module)), place)


def _value(outside: Outside, external: External) -> object:
    try:
        return outside.value_of(external)
    except ValueError:  # an empty cell is refused where it is resolved
        return None


_OF_THIS_MACHINE = frozenset(
    {"__cached__", "__file__", "__loader__", "__path__", "__spec__"}
)
_ATOMS = frozenset({bool, int, float, complex, str, bytes, tuple})


# (graph, value, wanted name, how messages call it) → target
Maker = Callable[["Graph", Any, str, str], Target]


class Graph:
    """All targets of one module."""

    def __init__(
        self,
        make: Maker,  # returns a new target for a value: `makers.make_target`
        *,
        # longest constant written as source, chars
        literal_chars: int = MODULE_LITERAL_CHARS,
        # whether data may travel beside the source (validators: no)
        state_allowed: bool = True,
    ) -> None:
        self._make = make
        self.targets: list[Target] = []
        self.bindings: dict[tuple[object, ...], Binding] = {}
        self.undefined: set[str] = set()
        self.uses: list[Use] = []
        self._attributes: dict[int, str] = {}
        self.expressions = Expressions(self.place, literal_chars)
        self.state_allowed = state_allowed
        self._by_id: dict[int, Target] = {}
        self._wrapped: dict[int, Target] = {}
        self.lifted: set[tuple[int, int]] = set()
        self._alive: list[object] = []
        self.discover: Callable[[object, str], list[Target]] = lambda _value, _where: []

    # -- placing values ------------------------------------------------------------

    def seal(self) -> None:
        """Take nothing new from now on: the text is written."""
        self._make = _refuse_new

    def place(self, value: object, wanted: str, where: str) -> Target:
        """Return the target that stands for an object, making it when it is new."""
        target = self._by_id.get(id(value))
        if target is not None:
            if wanted and wanted not in target.wanted:
                target.wanted.append(wanted)
            return target
        return self._make(self, value, wanted, where)

    def place_callable(self, value: object, wanted: str, where: str) -> Target:
        """Return a target that defines `value` in the module itself.

        Arguments may refer only to names of the task module: a library's class is imported
        there, its function gets a small ``def`` around it.
        """
        known = self._wrapped.get(id(value))
        if known is not None:
            return known
        target = self.place(value, wanted, where)
        if isinstance(target, FunctionTarget | ClassTarget | WrapperTarget):
            return target
        if isinstance(target, ImportTarget) and isinstance(value, type):
            return target
        wrapper = WrapperTarget([wanted or str(getattr(value, "__name__", ""))], where)
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

    def remember(self, value: object, target: Target) -> None:
        """Register before descending, so that recursion ends."""
        self._by_id[id(value)] = target
        self._alive.append(value)
        self.targets.append(target)

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
        replaced = replace_own_modules(self.resolve_name, unit, node, outside, place)
        self._attributes |= {
            id(inner.value): inner.attr
            for inner in ast.walk(node)
            if isinstance(inner, ast.Attribute)
        }
        for external in externals_of(node):
            if id(external.node) in replaced:
                continue
            self.resolve_name(unit, external, outside, place)

    def resolve_name(
        self, unit: Target, external: External, outside: Outside, place: str
    ) -> None:
        """Bind one use of an outside name; built-ins and unknown names stay as written."""
        where = f"`{external.name}` (used in {_line_of(external, place)})"
        try:
            value = outside.value_of(external)
        except ValueError:
            refuse(
                "STO-C013",
                f"{where} has no value yet",
                "create the task after the variable is assigned",
            )
        if value is MISSING:
            self.undefined.add(external.name)
            return
        if builtin_name(value) == external.name:
            return
        if external.name in _OF_THIS_MACHINE:
            refuse(
                "STO-C010",
                f"{where} is a path or loader of this machine",
                "write the text you need into the function",
            )
        binding = self.bindings.setdefault(
            outside.key_of(external), Binding(external.name, value, where)
        )
        self._alive.append(outside)
        binding.stored |= external.stored
        if binding.initial is None:
            binding.initial = self._place_binding(binding)
        self.uses.append(Use(unit, external, binding))
        attribute = self._attributes.get(id(external.node), "")
        if isinstance(binding.initial, ImportTarget):
            self._note_submodule(attribute, binding.initial)
        elif isinstance(value, types.FunctionType) and attribute in vars(value):
            refuse(
                "STO-C010",
                f"{where} keeps data in its attribute {attribute}, which does not travel",
                "keep it in an object of a class, or in a global variable",
            )

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
    def _note_submodule(attribute: str, target: ImportTarget) -> None:
        """``import a`` with a use of ``a.b.c``: import the submodule as well."""
        dotted = f"{target.module}.{attribute}"
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


def _refuse_new(_graph: Graph, _value: object, _wanted: str, where: str) -> Target:
    raise InternalError("STO-R034", f"{where} is not in the source that was written")


@dataclass(frozen=True, eq=False)
class Use:
    """One use of an outside variable by one unit."""

    unit: Target
    external: External
    binding: Binding
