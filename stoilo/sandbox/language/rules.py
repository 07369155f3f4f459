"""The one table of names, and of reasons to refuse: the same for gate, loader and guards.

An attribute or variable name falls into one `NameKind`. *Plain* names compile to direct
access: no object that a façade hands out gives more through them (a test walks every
façade). *Guarded* names go through the guards, which decide on the object.
*Refused* names never compile, and no guard lets them through.
"""

from __future__ import annotations

import ast
import importlib
from enum import Enum
from typing import NoReturn, TypeGuard

import msgspec
from RestrictedPython.transformer import INSPECT_ATTRIBUTES

from stoilo.core.digests import Digest, Domain, domain_digest
from stoilo.core.errors import InternalError, PolicyRefusal
from stoilo.core.levels import Level
from stoilo.core.types import Finding, Severity

LANGUAGE_VERSION = "3"
"""Raised whenever a program could mean or be allowed something else than before."""

TASK_MODULE = "stoilo_task"
"""``__name__`` of the loaded source; marks the task's own classes and functions."""

TASK_FILENAME = "<task>"
PRIVATE_PREFIX = "_stoilo_"
"""Names that the transformer injects; no source can spell or bind one."""

MAX_FINALLY_DEPTH = 4  # each level doubles the code that the compiler emits
MAX_EMITTED_NODES = 150_000  # with finally bodies copied to each exit
MAX_LITERAL_BITS = 16_384  # about the 4,300 digits that CPython reads
MAX_LITERAL_LENGTH = 65_536  # characters or bytes of one literal
MAX_TREE_DEPTH = 120  # nodes; the transformer recurses four frames a node


class NameKind(Enum):
    """How an attribute name is treated."""

    PLAIN = "plain"
    GUARDED = "guarded"
    REFUSED = "refused"


def _binary(*stems: str) -> set[str]:
    return {f"__{prefix}{stem}__" for stem in stems for prefix in ("", "r", "i")}


HOOK_DUNDERS = frozenset(
    {"__getattr__", "__setattr__", "__delattr__"}
    | {"__array__", "__deepcopy__", "__init_subclass__", "__set_name__"}
)
"""Written with ``def`` only, and wrapped there (`hooks`): whoever calls them
chooses a name or hands in something of its own."""

DEFINABLE_DUNDERS = HOOK_DUNDERS | frozenset(
    _binary(
        *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"),
        *("lshift", "rshift", "and", "or", "xor"),
    )
    | {"__divmod__", "__rdivmod__", "__neg__", "__pos__", "__abs__", "__invert__"}
    | {"__complex__", "__int__", "__float__", "__index__", "__bool__", "__hash__"}
    | {"__round__", "__trunc__", "__floor__", "__ceil__"}
    | {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"}
    | {"__repr__", "__str__", "__format__", "__bytes__"}
    | {"__len__", "__length_hint__", "__iter__", "__next__", "__reversed__"}
    | {"__contains__", "__getitem__", "__setitem__", "__delitem__", "__missing__"}
    | {"__call__", "__enter__", "__exit__", "__copy__"}
    | {"__get__", "__set__", "__delete__", "__class_getitem__"}
    | {"__init__", "__new__", "__post_init__"}
)
"""What a class of the task may define, and reach through ``super()``.

Never: ``__reduce__ __getattribute__ __class__ __del__ __match_args__
__array_interface__ __prepare__ __instancecheck__``: libraries trust what these return.
"""

GUARDED_DUNDERS = DEFINABLE_DUNDERS | {"__dict__", "__getattribute__"}
"""Special names that an attribute read may spell; no attribute is ever assigned so."""

MODULE_CONSTANTS = frozenset(
    {"__all__", "__author__", "__copyright__", "__date__", "__license__"}
    | {"__version__"}
)
"""What a module says of itself, by custom: variables of its body, which nobody reads."""

READABLE_DUNDERS = frozenset(
    {"__name__", "__qualname__", "__doc__", "__cause__", "__context__", "__version__"}
)
"""Text, or exceptions; modules have no text but what their façade lists."""

GUARDED_ATTRIBUTES = frozenset(
    {"bit_generator", "buffer_info", "cffi", "ctypes", "data_ptr", "dump", "dumps"}
    | {"format", "format_map", "fromfile", "gen", "mro", "obj", "resize", "set_"}
    | {"set_state", "setflags", "share_memory_", "storage", "tofile", "untyped_storage"}
    | {"attrname", "base", "capsule", "fields", "keywords"}
    | {"extra_dict_ref", "hooks_dict_ref"}
)
"""Names under which some library object gives away more than data."""

REFUSED_ATTRIBUTES = frozenset(INSPECT_ATTRIBUTES) | {
    *("func_closure", "func_code", "func_defaults", "func_dict", "func_globals"),
    *("im_class", "im_func", "im_self", "tb_lasti", "tb_lineno", "f_lasti", "f_lineno"),
    *("gi_running", "gi_suspended", "co_consts", "co_names", "co_varnames"),
    *("co_freevars", "co_cellvars", "co_filename", "co_consts"),
}

_REFUSED_PREFIXES = (PRIVATE_PREFIX, "_abc_")
UNBINDABLE = frozenset({"super"})
"""Names with a meaning in the transformer itself."""


def is_dunder(name: str) -> bool:
    """Whether `name` has the form ``__x__``."""
    return len(name) > 4 and name.startswith("__") and name.endswith("__")  # noqa: PLR2004


def attribute_kind(name: str) -> NameKind:
    """Return how ``obj.name`` is treated; `name` is as the compiler sees it."""
    if name in READABLE_DUNDERS:
        return NameKind.PLAIN
    if name in GUARDED_DUNDERS:
        return NameKind.GUARDED
    if (
        name in REFUSED_ATTRIBUTES
        or name.startswith(_REFUSED_PREFIXES)
        or (name.startswith("__") and name.endswith("__"))
    ):
        return NameKind.REFUSED
    if name.startswith("_") or name in GUARDED_ATTRIBUTES:
        return NameKind.GUARDED
    return NameKind.PLAIN


def is_plain(name: object) -> TypeGuard[str]:
    """Whether `name` (untrusted) is exact text that compiles to direct access.

    A class of the task's own may equal one name now and another later, so only ``str`` counts.
    """
    return type(name) is str and attribute_kind(name) is NameKind.PLAIN


def is_variable_name(name: str) -> bool:
    """Whether a variable, parameter, keyword or definition may have this name."""
    return not (
        name.startswith(_REFUSED_PREFIXES)
        or (name.startswith("__") and name.endswith("__"))
        or name in UNBINDABLE
    )


def mangled(name: str, class_name: str | None) -> str:
    """Return what the compiler makes of a private `name` inside `class_name`."""
    if class_name is None or not name.startswith("__") or name.endswith("__"):
        return name
    stripped = class_name.lstrip("_")
    return f"_{stripped}{name}" if stripped else name


def _language_digest() -> Digest:
    tables = (
        GUARDED_DUNDERS,
        HOOK_DUNDERS,
        MODULE_CONSTANTS,
        READABLE_DUNDERS,
        GUARDED_ATTRIBUTES,
        REFUSED_ATTRIBUTES,
    )
    rendered = (" ".join(sorted(table)).encode() for table in tables)
    return domain_digest(Domain.LANGUAGE, LANGUAGE_VERSION.encode(), *rendered)


LANGUAGE_DIGEST: Digest = _language_digest()
"""What an admission names as its language layer."""


# What the language layer says about a place in the source, by stable code -------------


class Rule(msgspec.Struct, frozen=True):
    """One reason to refuse: code and what to do instead."""

    code: str
    hint: str


SYNTAX = Rule(
    "STO-P023", "run the file with Python 3.11 and correct the error it names"
)
TOO_LARGE = Rule("STO-P022", "split it into functions, or use sum(), a loop or a dict")
FINALLY = Rule("STO-P027", "move the inner try/finally into a function of its own")
LITERAL = Rule("STO-P010", "send large data as an argument")
NAME = Rule("STO-G010", "choose a name without two leading underscores")
ATTRIBUTE = Rule("STO-G101", "use the public interface of the object")
DUNDER = Rule("STO-G010", "define a plain method and call it by name")
ASYNC = Rule("STO-G014", "a task runs alone in one thread: write a plain function")
SYNTAX_KIND = Rule("STO-G014", "rewrite it with ordinary statements")
METACLASS = Rule("STO-G105", "use a class decorator, __init_subclass__ or abc.ABCMeta")
STAR = Rule("STO-P042", "name what you import")
RELATIVE = Rule("STO-P042", "a task is one module: define what you need in it")
MODULE = Rule("STO-P040", "`stoilo policy show` lists each level's modules")
MODULE_NAME = Rule("STO-P040", "`stoilo policy show` lists each module's names")
BUILTIN = Rule("STO-G020", "a task only computes: it gets arguments, returns a value")


def finding_at(node: ast.AST, rule: Rule, message: str) -> Finding:
    """Return an error finding at `node`; lines and columns from 1."""
    line = getattr(node, "lineno", 1) or 1
    column = (getattr(node, "col_offset", 0) or 0) + 1
    return Finding(
        code=rule.code,
        severity=Severity.ERROR,
        line=line,
        column=column,
        end_line=getattr(node, "end_lineno", None) or line,
        end_column=(getattr(node, "end_col_offset", None) or 0) + 1,
        message=message,
        hint=rule.hint,
    )


# What a guard says when it says no; below guards and façades, which both say it -------


class GuardError(PolicyRefusal):
    """A guard said no while the task ran."""


def kind_name(value: object) -> str:
    """Return the class name of `value` (untrusted), bounded."""
    cls = value if isinstance(value, type) else type(value)
    return str.__str__(cls.__name__)[:64]


def refuse_read(value: object, name: str) -> GuardError:
    """Return the refusal of reading ``value.name``."""
    return GuardError(
        "STO-G101",
        f"the attribute {str(name)[:64]!r} of a {kind_name(value)} is out of reach",
        hint="a task sees the public interface of library objects only",
    )


def refuse_write(value: object, name: str) -> GuardError:
    """Return the refusal of assigning or deleting ``value.name``."""
    return GuardError(
        "STO-G102",
        f"the attribute {str(name)[:64]!r} of a {kind_name(value)} cannot be changed",
        hint="a task changes its own objects, not modules or library classes",
    )


# Closed members: library classes whose instances show the names a level lists, no others
#
# A façade bounds what a module holds; plain attributes of *instances* compile to direct
# access. So a class that carries more than data (tensors, modules, optimisers) is closed
# itself, once, in the zygote: every public name that the level does not list raises. That
# holds for every road to it: direct access, ``getattr``, a library that takes names.


class Closed:
    """Stands where a library class had a name that no task may use."""

    __slots__ = ("_name", "_owner")

    def __init__(self, owner: str, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise GuardError(
            "STO-G101",
            f"the attribute {self._name!r} of a {self._owner} is out of reach",
            hint="its level or library withholds it: `stoilo policy show NAME` says why",
        )

    def __set__(self, instance: object, value: object) -> NoReturn:
        raise GuardError(
            "STO-G102",
            f"the attribute {self._name!r} of a {self._owner} cannot be changed",
            hint="a task changes its own objects, not modules or library classes",
        )


def find_class(dotted: str) -> type:
    """Return the class that a level calls `dotted` or raise ``STO-P001``."""
    module, _, name = dotted.rpartition(".")
    found = getattr(importlib.import_module(module), name, None)
    if not isinstance(found, type):
        raise InternalError("STO-P001", f"level data name no class {dotted}")
    return found


def hidden_names(cls: type, listed: tuple[str, ...]) -> list[str]:
    """Return the public names of `cls` that are not `listed`, sorted."""
    kept = frozenset(listed)
    return [name for name in dir(cls) if not name.startswith("_") and name not in kept]


def close_members(level: Level) -> None:
    """Close what the level's classes define and do not list (in the zygote, once)."""
    for dotted, listed in level.members.items():
        cls = find_class(dotted)
        absent = [name for name in listed if not hasattr(cls, name)]
        if absent:
            raise InternalError("STO-P001", f"level data name {dotted}.{absent[0]}")
        for name in hidden_names(cls, listed):
            setattr(cls, name, Closed(cls.__name__, name))
