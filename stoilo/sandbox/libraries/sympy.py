"""`sympy`: nothing evaluates Python, looks at frames, or draws without a seed.

sympy hands text to ``eval`` in nearly every function (``solve("x + 1")``), and `lambdify`
hands what it prints to ``exec``. Both names are exchanged in the library's own modules: what
is left walks the text (`stoilo.sandbox.libraries.sympy_text`) or refuses. Done once, in the
zygote, so it holds on every road into the library.
"""

from __future__ import annotations

import importlib
import random
import re
from types import ModuleType, SimpleNamespace
from typing import Any

from stoilo.core.levels import Level, ModuleRule
from stoilo.sandbox.facades import clock
from stoilo.sandbox.language.rules import Closed, GuardError, kind_name
from stoilo.sandbox.libraries import mpmath
from stoilo.sandbox.libraries.packages import (
    bind_classes,
    modules_of,
    refuse,
    shut_builtins,
)
from stoilo.sandbox.libraries.sympy_text import define, evaluate

_FIRST_DUMMY = 1_000_000
_CALLABLES = frozenset(
    {"abs", "all", "any", "bin", "chr", "divmod", "hash", "hex", "len", "max", "min"}
    | {"oct", "ord", "pow", "repr", "round", "sorted", "sum"}
)
"""Built-in functions that text for sympy may call."""


def _find_nothing(*_args: Any, **_options: Any) -> None:
    """Answer for ``sympy.external.import_module``: no optional library is there."""


def _random_module(level: Level) -> ModuleType:
    """Return ``random`` whose generators without a seed are seeded by the admission."""
    made = ModuleType("random")
    build: Any = clock.FACADES["random"]
    made.__dict__.update(vars(random) | build(level))
    return made


def _listed(level: Level, dotted: str) -> dict[str, Any]:
    """Return what a task finds in a module without a façade of its own, by name."""
    real = importlib.import_module(dotted)
    names = level.modules.get(dotted, ModuleRule()).names
    return {name: getattr(real, name) for name in names}


_prepared: list[str] = []


def _prepare(level: Level) -> None:
    """Exchange what sympy evaluates, imports and draws with; once a process."""
    if _prepared:
        return
    _prepared.append(level.name)
    mpmath.seal()
    # It compiles text of its own, made of a number of generators
    monomials: Any = importlib.import_module("sympy.polys.monomials")
    monomials.exec = exec
    shut_builtins("sympy")
    bind_classes("sympy")
    sympy_import = importlib.import_module("sympy.external").import_module
    seeded = _random_module(level)
    for names in map(vars, modules_of("sympy")):
        if names.get("random") is random:
            names["random"] = seeded
        if names.get("import_module") is sympy_import:
            names["import_module"] = _find_nothing
    _fix_chance()
    _seal_functions()
    _route_strings(level)
    _route_functions(level)


def _fix_chance() -> None:
    chance: Any = importlib.import_module("sympy.core.random")
    chance.seed(0)  # trial values and the order of questions: the same on every copy
    symbol: Any = importlib.import_module("sympy.core.symbol")
    symbol.Dummy._base_dummy_index = _FIRST_DUMMY  # noqa: SLF001 - drawn at import


# Undefined functions are classes made at run time: of a name and assumptions only


def _seal_functions() -> None:
    function: Any = importlib.import_module("sympy.core.function")
    assumptions: Any = importlib.import_module("sympy.core.assumptions")
    undefined, base = function.UndefinedFunction, (function.AppliedUndef,)
    make = undefined.__new__
    known = frozenset(assumptions._assume_defined) | {"_imp_", "nargs"}  # noqa: SLF001 - the assumptions there are

    def new(kind: Any, name: Any, *more: Any, **given: Any) -> Any:
        if kind is not undefined or more or not known.issuperset(given):
            raise GuardError(
                "STO-G105",
                "an undefined function has a name and assumptions, no bases, no members",
                hint="extend sympy.Function",
            )
        return make(kind, name, base, None, **given)

    undefined.__new__ = new
    singletons: Any = importlib.import_module("sympy.core.singleton")
    registry = singletons.SingletonRegistry
    registry.register = Closed("SingletonRegistry", "register")
    # It imports by name, and what it gives is asked for attributes by names of classes
    assume: Any = importlib.import_module("sympy.assumptions.assume")
    assume.get_class = refuse
    dispatch: Any = importlib.import_module("sympy.multipledispatch.dispatcher")
    for name in ("help", "source"):  # these read source files
        setattr(dispatch.Dispatcher, name, Closed("Dispatcher", name))
    # A class of a task's may be called Print: what its file is called became a template
    printing: Any = importlib.import_module("sympy.printing.c")
    printing.C89CodePrinter._print_Print = refuse  # noqa: SLF001 - it prints programs, not expressions


# Strings as expressions


def _route_strings(level: Level) -> None:
    parser: Any = importlib.import_module("sympy.parsing.sympy_parser")
    public = _listed(level, "sympy")
    builtin: Any = importlib.import_module("builtins")
    allowed = {name: getattr(builtin, name) for name in _CALLABLES}

    def fill(_text: str, names: dict[str, Any]) -> None:
        names.update(public)

    parser.exec = fill
    parser.builtins = SimpleNamespace(**allowed)
    parser.compile = lambda tree, *_more: tree
    parser.eval = evaluate


# Expressions as functions

_IMPORT = re.compile(r"from ([a-z_.]+) import (\w+)")
_ARRAY_NAMES = (
    *("amax", "amin", "array", "asarray", "block", "concatenate", "cos", "cross"),
    *("cumsum", "diag", "dot", "e", "einsum", "euler_gamma", "eye", "hstack", "inf"),
    *("nan", "ones", "pi", "piecewise", "prod", "select", "sinc", "sum", "tensordot"),
    *("transpose", "vstack", "where", "zeros"),
)


def _array_names(level: Level) -> dict[str, Any] | None:
    """Return the functions of numpy for arrays, None at a level without numpy."""
    if "numpy" not in level.modules:
        return None
    numpy: Any = importlib.import_module("numpy")
    names = vars(numpy).items()
    ufuncs = {name: one for name, one in names if isinstance(one, numpy.ufunc)}
    algebra = ("det", "inv", "matrix_power", "norm", "solve")
    return (
        ufuncs
        | {name: getattr(numpy, name) for name in _ARRAY_NAMES}
        | {name: getattr(numpy.linalg, name) for name in algebra}
        | {"abs": numpy.abs, "conj": numpy.conj, "numpy": None}
    )


def _route_functions(level: Level) -> None:
    made: Any = importlib.import_module("sympy.utilities.lambdify")
    tables: dict[str, dict[str, Any] | None] = {
        name: _listed(level, name) for name in ("math", "cmath", "sympy")
    }
    tables["mpmath"] = mpmath.public_names()
    tables["numpy"] = tables["numpy.linalg"] = _array_names(level)

    def take(line: str, names: dict[str, Any]) -> None:
        # One of sympy's own import lines, from its tables or its printers
        if found := _IMPORT.fullmatch(line):
            table = tables.get(found[1]) or {}
            if found[2] not in table:
                raise ImportError(f"{found[1]} has no {found[2]} in a task")
            names[found[2]] = table[found[2]]
            return
        if (whole := tables.get(line)) is None:
            raise ImportError(f"{line} is not at this level")
        names.update(whole)

    def execute(code: str, names: dict[str, Any], local: dict[str, Any]) -> None:
        if code.startswith("def "):
            name = code[4 : code.index("(")]
            names = {key: one for key, one in names.items() if key != "builtins"}
            names["builtins"] = _BUILTINS
            local[name] = define(code, _PLAIN | names)
        else:
            take(code, local)

    namespace = made._get_namespace  # noqa: SLF001 - from text, a dict or a module

    def get_namespace(names: Any) -> Any:
        # The dictionary of anything else holds more than its public attributes
        if type(names) not in {str, dict, ModuleType}:
            raise GuardError(
                "STO-G108",
                f"lambdify takes no names from a {kind_name(names)}",
                hint='use "math", "mpmath", "numpy", or a dict of functions',
            )
        return namespace(names)

    made._get_namespace = get_namespace  # noqa: SLF001 - the same, of no objects
    made.exec = execute
    made.compile = lambda text, *_more: text
    for name, (space, default, translations, _) in list(made.MODULES.items()):
        made.MODULES[name] = (
            space,
            default,
            _known(translations, tables.get(name)),
            (name,),
        )


_PLAIN: dict[str, Any] = {
    one.__name__: one
    for one in (abs, bool, complex, float, int, len, max, min, pow, range, round, sum)
}
"""What sympy's printers call of Python itself."""

_BUILTINS = SimpleNamespace(**_PLAIN)


def _known(
    translations: dict[str, str], table: dict[str, Any] | None
) -> dict[str, str]:
    return {key: name for key, name in translations.items() if name in (table or {})}


# What a task gets ----------------------------------------------------------------------


def _build_sympy(level: Level) -> dict[str, object]:
    _prepare(level)
    return {}


FACADES: dict[str, object] = {
    "sympy": _build_sympy,
    "sympy.utilities.lambdify": _build_sympy,
}
