"""An instrument: records every object that a task's code reaches, and judges it.

It rewrites the *transformed* tree, so that each value that an expression yields passes
through the recorder, whatever guard did or did not stand before it. The judge knows
nothing of the guards' own tables: it says what no task may ever hold.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import re
import sys
import types
import typing
from dataclasses import dataclass, field
from io import StringIO

from stoilo.sandbox.language.guards import Guards
from stoilo.sandbox.language.rules import TASK_FILENAME, TASK_MODULE
from stoilo.sandbox.language.substitutes import StandIn
from stoilo.sandbox.language.transformer import restrict_tree

NEVER = (
    types.FrameType,
    types.CodeType,
    types.TracebackType,
    types.CellType,
    importlib.machinery.ModuleSpec,
)
POWERS = {
    id(getattr(builtins, name)): name
    for name in (
        *("open", "eval", "exec", "compile", "globals", "locals", "vars", "dir", "id"),
        *("getattr", "setattr", "delattr", "__import__", "__build_class__", "type"),
        *("input", "breakpoint"),
    )
} | {id(sys.modules): "sys.modules", id(sys._getframe): "sys._getframe"}
HOOKS = frozenset(
    {"__subclasses__", "__getattribute__", "__setattr__", "__delattr__", "__reduce__"}
    | {"__reduce_ex__", "__init_subclass__", "__prepare__", "__dir__", "__getattr__"}
    | {"__set_name__", "__setstate__", "__getstate__", "mro"}
)
INSIDES = re.compile(
    r"<(frame|code|cell|traceback|ModuleSpec) (object )?at 0x"
    r"|'__builtins__': |mappingproxy\(\{'__module__'|^<module 'stoilo_task'>$"
    r"|<(built-in method|method-wrapper|slot wrapper|function) '?(object\.)?"
    r"__(reduce|subclass|getattribute|init_subclass|dir__|setattr|delattr|sizeof)"
)
"""How inner objects look as text: what a format field that reads one would give."""

PUBLIC_PRIVATE = frozenset({"_asdict", "_field_defaults", "_fields", "_make"}) | {
    *("_replace", "__init__", "__new__", "__post_init__"),
}
OURS_IN_REACH = frozenset({"function", "type"})


@dataclass
class Record:
    """What one run reached: how much, and what it should not have."""

    reached: int = 0
    leaks: list[str] = field(default_factory=list)

    def leak(self, text: str) -> None:
        if len(self.leaks) < 20:
            self.leaks.append(text)


def class_of(value: object) -> type:
    return value if isinstance(value, type) else type(value)


def is_own(value: object) -> bool:
    return type.__dict__["__dict__"].__get__(class_of(value)).get("__module__") == (
        TASK_MODULE
    )


class Judge:
    """Says why an object is out of bounds, or None.

    Args:
        runtime: the level's language layer, for what it hands out on purpose.
    """

    def __init__(self, runtime) -> None:
        modules = runtime.facades.modules.values()
        self.facades = set(map(id, modules))
        self.handed_out = {id(value) for one in modules for value in vars(one).values()}
        self.handed_out |= set(map(id, runtime._builtins.values()))
        self.handed_out |= set(map(id, runtime.guards.stand_ins.values()))
        self.type_class = runtime.guards.type_class

    def fault(self, value: object) -> str | None:  # noqa: PLR0911 - one kind a line
        kind = type(value)
        if kind is bool or value is None or kind in {int, float, bytes}:
            return None
        if kind is str:
            return "the text of an inner object" if INSIDES.search(value) else None
        if isinstance(value, NEVER):
            return f"a {kind.__name__}"
        if isinstance(value, types.ModuleType):
            return None if id(value) in self.facades else f"module {value.__name__}"
        if isinstance(value, type):
            return self._fault_of_class(value)
        if id(value) in POWERS:
            return f"the power {POWERS[id(value)]}"
        return self._fault_of_namespace(value) or self._fault_of_callable(value)

    def _fault_of_class(self, cls: type) -> str | None:
        if type in type.__dict__["__mro__"].__get__(cls):
            return f"the metaclass {cls.__name__}"
        if is_own(cls):
            return self._fault_of_bases(cls)
        if cls.__module__ == "builtins" or issubclass(cls, BaseException):
            return None
        known = id(cls) in self.handed_out or cls is self.type_class
        return None if known or type(cls) is StandIn else f"the inner class {cls!r}"

    def _fault_of_bases(self, cls: type) -> str | None:
        for base in cls.__bases__:
            plain = base.__module__ == "builtins" or base is typing.Generic
            if not (plain or is_own(base) or id(base) in self.handed_out):
                return f"an extension of {base!r}"
        return None

    def _fault_of_namespace(self, value: object) -> str | None:
        if type(value) is types.MappingProxyType:
            return "a class's dictionary" if "__module__" in value else None
        if type(value) is dict and "__builtins__" in value:
            return "a module's dictionary"
        kind = type(value)
        if isinstance(value, BaseException):
            return None
        ours = (
            kind.__module__.startswith("stoilo.") and id(value) not in self.handed_out
        )
        if ours and id(kind) not in self.handed_out and kind is not self.type_class:
            return None if kind.__name__ in OURS_IN_REACH else f"our own {kind!r}"
        return None

    def _fault_of_callable(self, value: object) -> str | None:
        if isinstance(value, types.FunctionType) and value.__module__ == TASK_MODULE:
            return None
        if id(value) in self.handed_out or not callable(value):
            return None
        name = getattr(value, "__name__", "")
        if not isinstance(name, str) or name in PUBLIC_PRIVATE:
            return None
        if name in HOOKS:
            return f"the hook {name}"
        owner = getattr(value, "__self__", None)
        return "a guard's method" if type(owner) is Guards else None


class Instrument(ast.NodeTransformer):
    """Sends every loaded value and every assigned attribute through the record."""

    def visit(self, node: ast.AST) -> ast.AST:  # noqa: PLR0911 - one kind a line
        if isinstance(node, ast.pattern):
            return node
        if isinstance(node, ast.match_case):
            node.guard = node.guard and self.visit(node.guard)
            node.body = [self.visit(one) for one in node.body]
            return node
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        private = _is_private(node)
        node = node if self._is_private_call(node) else self.generic_visit(node)
        loads = isinstance(getattr(node, "ctx", None), ast.Load | None)
        skip = private or isinstance(
            node, ast.Constant | ast.Starred | ast.Slice | ast.JoinedStr
        )
        if not isinstance(node, ast.expr) or skip or not loads:
            return node
        if isinstance(node, ast.FormattedValue):
            return node
        if isinstance(node, ast.Name) and node.id == "super":
            return node
        return self._call("_test_seen", node)

    def _is_private_call(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return False
        if not node.func.id.startswith("_stoilo_"):
            return False
        node.args = [self.visit(one) for one in node.args]
        node.keywords = [self.visit(one) for one in node.keywords]
        return True

    def _attribute(self, node: ast.Attribute) -> ast.AST:
        value = self.visit(node.value)
        name = ast.Constant(node.attr)
        if isinstance(node.ctx, ast.Load):
            node.value = self._call("_test_read", value, name)
            return self._call("_test_seen", node)
        node.value = self._call("_test_written", value, name)
        return node

    def _call(self, name: str, *args: ast.expr) -> ast.expr:
        call = ast.Call(ast.Name(name, ast.Load()), list(args), [])
        return ast.copy_location(call, args[0])


def _is_private(node: ast.AST) -> bool:
    """Whether it is one of our own names, or ``type`` in an inline test."""
    match node:
        case ast.Name(id=name):
            return name.startswith("_stoilo_")
        case ast.Call(func=ast.Name(id="_stoilo_type")):
            return True
    return False


class Laboratory:
    """A task module that grows statement by statement under the instrument.

    Attributes:
        record: what was reached so far.
        names: the module's namespace.
    """

    def __init__(self, runtime) -> None:
        self.runtime = runtime
        self.record = Record()
        self._judge = Judge(runtime)
        self._place = ""
        module = types.ModuleType(TASK_MODULE)
        sys.modules[TASK_MODULE] = module
        self.names = module.__dict__
        self.names["__builtins__"] = runtime._builtins | {
            "print": StringIO().write,
            "_stoilo_known": runtime.guards.remember_in(self.names),
            "_stoilo_seen": runtime.guards.see_in(self.names),
            "_test_seen": self._seen,
            "_test_read": self._read,
            "_test_written": self._written,
        }

    def run(self, statement: str) -> bool:
        """Compile and run one statement; return whether the gate let it."""
        tree = ast.parse(statement, TASK_FILENAME)
        if restrict_tree(tree, self.runtime.level):
            return False
        self._place = statement
        tree = ast.fix_missing_locations(Instrument().visit(tree))
        exec(compile(tree, TASK_FILENAME, "exec"), self.names)  # noqa: S102
        return True

    def _seen(self, value: object) -> object:
        self.record.reached += 1
        if (fault := self._judge.fault(value)) is not None:
            self.record.leak(f"reached {fault} by:\n{self._place}")
        return value

    def _read(self, value: object, name: str) -> object:
        """Direct access under a private name is for the task's own objects only."""
        private = name.startswith("_") and not name.startswith("__")
        if private and not is_own(value) and type(value) is not super:
            self.record.leak(f"read {name} of {type(value)} by:\n{self._place}")
        return value

    def _written(self, value: object, name: str) -> object:
        own = is_own(value) or getattr(value, "__module__", "") == TASK_MODULE
        library = isinstance(value, type | types.ModuleType | types.FunctionType)
        private = name.startswith("_")
        if not own and (library or private):
            self.record.leak(f"wrote {name} of {value!r:.80} by:\n{self._place}")
        return value
