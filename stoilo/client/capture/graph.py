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
from stoilo.client.capture.library import check_module
from stoilo.client.capture.outside import MISSING, Outside
from stoilo.client.capture.own_modules import replace_own_modules
from stoilo.client.capture.plain import lift_nonlocals
from stoilo.client.capture.refusals import refuse
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
    forwarding_call,
    reference,
)

_OF_THIS_MACHINE = frozenset(
    {"__cached__", "__file__", "__loader__", "__path__", "__spec__"}
)
_ATOMS = frozenset({bool, int, float, complex, str, bytes, tuple})


Maker = Callable[["Graph", Any, str, str], Target]
"""(graph, value, wanted name, how messages call it) → target."""


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

        Arguments may refer only to functions of the task module, so a library's function
        gets a small ``def`` around it.
        """
        known = self._wrapped.get(id(value))
        if known is not None:
            return known
        target = self.place(value, wanted, where)
        if isinstance(target, FunctionTarget | ClassTarget | WrapperTarget):
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
        if external.name in _OF_THIS_MACHINE:
            refuse(
                "STO-C023",
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
                "STO-C023",
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


@dataclass(frozen=True, eq=False)
class Use:
    """One use of an outside variable by one unit."""

    unit: Target
    external: External
    binding: Binding
