"""What library source does that no task may: files, processes, text that is run.

The scan of levels (`source_scan`) finds every place that trusts an argument, for code that
a task's own classes meet. Of a whole library somebody has to read less: what leads outside
the process or to code. The table below says which names do; a name of an attribute counts
where it may come from an argument. Nothing is run.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
from collections.abc import Collection, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType

import msgspec

from stoilo.flavors.describing.source_scan import (
    digest_tree,
    find_definition,
    follow,
    functions_in,
    inside,
)

FILES = "files"
SOCKETS = "sockets"
PROCESSES = "processes"
UNPICKLING = "unpickling"
COMPILING = "compiling"
POINTERS = "native pointers"
TEXT = "evaluates strings"
NAMES = "attribute names as arguments"
MODULES = "module objects"
NO_SOURCE = "no source"

_DANGERS = {
    FILES: "builtins.open io.open io.FileIO io.open_code os shutil tempfile glob pathlib "
    "zipfile gzip bz2 lzma tarfile mmap sqlite3 fileinput linecache pkgutil.get_data "
    "importlib.resources numpy.load numpy.save numpy.savez numpy.savez_compressed "
    "numpy.loadtxt numpy.savetxt numpy.genfromtxt numpy.fromfile numpy.memmap "
    "numpy.DataSource numpy.lib.format numpy.lib.npyio fsspec",
    SOCKETS: "socket ssl urllib.request http ftplib smtplib requests urllib3 aiohttp httpx "
    "asyncio selectors webbrowser",
    PROCESSES: "subprocess multiprocessing concurrent.futures joblib signal pty "
    "threading.Thread threading.Timer os.system os.popen os.fork os.kill",
    UNPICKLING: "pickle marshal shelve dill cloudpickle joblib.load joblib.dump torch.load "
    "torch.save",
    COMPILING: "builtins.compile builtins.exec types.CodeType types.FunctionType code "
    "codeop numba torch.jit torch.compile",
    POINTERS: "ctypes cffi numpy.ctypeslib numpy.lib.stride_tricks.as_strided "
    "scipy.LowLevelCallable",
    TEXT: "builtins.eval string.Formatter numexpr",
    MODULES: "sys.modules importlib.import_module builtins.__import__ builtins.globals "
    "builtins.locals sys._getframe inspect.currentframe inspect.stack gc",
}
_KINDS = {name: kind for kind, names in _DANGERS.items() for name in names.split()}
_HARMLESS = frozenset(
    {
        "os.PathLike",
        "os.SEEK_CUR",
        "os.SEEK_END",
        "os.SEEK_SET",
        "os.cpu_count",
        "os.environ",
        "os.fspath",
        "os.getenv",
        "os.linesep",
    }
    | {
        "os.name",
        "os.path.basename",
        "os.path.dirname",
        "os.path.isabs",
        "os.path.join",
    }
    | {"os.path.normpath", "os.path.sep", "os.path.split", "os.path.splitext", "os.sep"}
)
_ATTRIBUTES = {
    **dict.fromkeys(("tofile", "read_text", "write_text", "read_bytes"), FILES),
    **dict.fromkeys(("write_bytes", "unlink", "mkdir"), FILES),
    **dict.fromkeys(("data_as", "from_address", "data_ptr", "unsafe_string"), POINTERS),
    **dict.fromkeys(("ctypes", "__array_interface__", "__array_struct__"), POINTERS),
    **dict.fromkeys(("__globals__", "f_globals", "f_locals", "__builtins__"), MODULES),
}
"""Attributes of whatever they are read off."""
_TAKES_NAMES = frozenset(
    {"builtins.getattr", "builtins.setattr", "builtins.delattr"}
    | {"operator.attrgetter", "operator.methodcaller"}
)
_ALIASES = {"posix": "os", "posixpath": "os.path", "genericpath": "os.path"} | {
    f"_{name}": name for name in ("io", "pickle", "socket", "ctypes", "operator")
}


class Danger(msgspec.Struct, frozen=True, order=True):
    """A function with places that somebody has to read."""

    name: str  # module and qualified name
    patterns: tuple[str, ...]  # kind and what, sorted, each once
    digest: str  # of its text without comments, layout and docstrings
    places: tuple[str, ...] = ()  # ``file:line`` of each, from the package's folder on


def scan_dangers(functions: Iterable[FunctionType]) -> list[Danger]:
    """Return the functions in which there is a danger, by name, each once."""
    found = {danger for one in functions if (danger := scan_function(one)) is not None}
    return sorted(found)


@functools.cache
def scan_function(function: FunctionType) -> Danger | None:
    """Return what is dangerous in one function, inner ones included; None for nothing."""
    name = f"{function.__module__}.{function.__qualname__}"
    path, tree = find_definition(function)
    if tree is None:  # made from text at run time: that text's maker is found itself
        return None if path.startswith("<") else Danger(name, (NO_SOURCE,), "")
    rows = list(_Reader(tree, function).dangers())
    if not rows:
        return None
    lines = sorted({line for _, line in rows})
    where = short_path(path, function.__module__)
    patterns = tuple(sorted({pattern for pattern, _ in rows}))
    places = tuple(f"{where}:{line}" for line in lines)
    return Danger(name, patterns, digest_tree(tree), places)


def kind_of(pattern: str) -> str:
    """Return the kind in a danger's pattern."""
    return pattern.partition(": ")[0]


def short_path(path: str, module: str) -> str:
    """Return a source file from its package's folder on: the same on every machine."""
    top = module.partition(".")[0]
    _, found, rest = path.rpartition(f"/{top}/")
    return f"{top}/{rest}" if found else path.rpartition("/")[2]


def name_kind(dotted: str) -> str:
    """Return the kind of danger that a full dotted name is; empty for none."""
    parts = dotted.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    if dotted == "os.path" or any(one in _HARMLESS for one in prefixes):
        return ""
    return next((_KINDS[one] for one in prefixes if one in _KINDS), "")


# What one function names ---------------------------------------------------------------


class _Reader:
    """Reads one function's syntax with what its names stand for."""

    def __init__(self, tree: ast.AST, function: FunctionType) -> None:
        self._tree = tree
        self._space = function.__globals__
        self._imported = dict(local_imports(tree, function))
        self._given = _from_arguments(tree) | set(function.__code__.co_freevars)
        self._bound = _bound_names(tree)

    def dangers(self) -> Iterator[tuple[str, int]]:
        """Yield (pattern, line) of each place."""
        todo: list[ast.AST] = [self._tree]
        while todo:
            node = todo.pop()
            dotted = self._dotted(node)
            if dotted:
                kind = name_kind(dotted)
                if kind:
                    yield f"{kind}: {dotted}", getattr(node, "lineno", 0)
                continue
            yield from self._node(node)
            todo.extend(_children(node))

    def _dotted(self, node: ast.AST) -> str:
        """Return the full name that an expression stands for, empty if it is unknown."""
        if isinstance(node, ast.Attribute):
            head = self._dotted(node.value)
            return f"{head}.{node.attr}" if head else ""
        return self._named(node.id) if isinstance(node, ast.Name) else ""

    def _named(self, name: str) -> str:
        if name in self._imported:
            return self._imported[name]
        if name in self._bound:
            return ""
        if name not in self._space:
            return f"builtins.{name}" if hasattr(builtins, name) else ""
        value = self._space[name]
        if isinstance(value, ModuleType):
            return value.__name__
        return full_name(value)

    def _node(self, node: ast.AST) -> Iterator[tuple[str, int]]:
        if isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES:
            yield f"{_ATTRIBUTES[node.attr]}: .{node.attr}", node.lineno
        elif isinstance(node, ast.Name):
            yield from self._table(node)
        if not isinstance(node, ast.Call):
            return
        called = self._dotted(node.func)
        name = called.rpartition(".")[2]
        place = 0 if called.startswith("operator.") else 1
        if called in _TAKES_NAMES and any(map(self._is_given, node.args[place:][:1])):
            yield f"{NAMES}: {name}()", node.lineno
        if isinstance(node.func, ast.Attribute):
            yield from self._method(node.func)

    def _table(self, node: ast.Name) -> Iterator[tuple[str, int]]:
        """Yield the dangers that a table of the module holds."""
        bound = node.id in self._imported or node.id in self._bound
        for part in () if bound else parts_of(self._space.get(node.id)):
            dotted = full_name(part)
            if kind := name_kind(dotted):
                yield f"{kind}: {dotted}", node.lineno

    def _method(self, called: ast.Attribute) -> Iterator[tuple[str, int]]:
        given = self._is_given(called.value)
        if called.attr == "format_map" or (called.attr == "format" and given):
            yield f"{TEXT}: .{called.attr}()", called.lineno

    def _is_given(self, node: ast.expr) -> bool:
        """Whether a value may come from an argument, of a constructor included."""
        return not self._given.isdisjoint(_names_in(node))


def full_name(value: object) -> str:
    """Return module and name of a function or class as this file's table says it."""
    name = getattr(value, "__qualname__", None)
    module = getattr(value, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        return ""
    return f"{_ALIASES.get(module, module)}.{name}"


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is evaluated inside `node`: annotations are not."""
    for field, value in ast.iter_fields(node):
        if field not in {"annotation", "returns"}:
            parts = value if isinstance(value, list) else [value]
            yield from (part for part in parts if isinstance(part, ast.AST))


def _bound_names(tree: ast.AST) -> set[str]:
    """Return the names that a function binds itself, anywhere in it."""
    stored = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    return stored | _parameters(tree)


def _parameters(tree: ast.AST) -> set[str]:
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _from_arguments(tree: ast.AST) -> set[str]:
    """Return the names in a function whose values may come from its arguments."""
    given = _parameters(tree)
    pairs = [pair for node in ast.walk(tree) for pair in _bindings(node)]
    before = -1
    while len(given) != before:
        before = len(given)
        for target, value in pairs:
            if given & _names_in(value):
                given |= _names_in(target)
    return given


def _bindings(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield (target, value) of what a statement or expression binds."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AugAssign | ast.NamedExpr | ast.AnnAssign):
        yield node.target, node.value or node.target
    elif isinstance(node, ast.For | ast.comprehension):
        yield node.target, node.iter


def _names_in(node: ast.AST) -> set[str]:
    """Return the names in an expression."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


# Where a function leads ----------------------------------------------------------------


def local_imports(tree: ast.AST, function: FunctionType) -> Iterator[tuple[str, str]]:
    """Yield (name, what it stands for) of the imports inside a function."""
    package = str(function.__globals__.get("__package__") or function.__module__)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                whole = one.name if one.asname else one.name.partition(".")[0]
                yield one.asname or whole, whole
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: -node.level + 1 or None] if node.level else []
            head = ".".join([*base, *([node.module] if node.module else [])])
            yield from (
                (one.asname or one.name, f"{head}.{one.name}") for one in node.names
            )


class Reach:
    """What a library's functions lead to by name; remembers each one's next."""

    def __init__(self, known: Collection[str], handed: Iterable[type]) -> None:
        """Begin with what is not followed.

        Args:
            known: import names of packages that others described.
            handed: classes that tasks get, whose open members are scanned as they are.
        """
        self._left_out = frozenset(known) | sys.stdlib_module_names
        self._handed = frozenset(handed)
        self._next: dict[FunctionType, list[FunctionType]] = {}
        self._members: dict[type, list[object]] = {}

    def from_functions(self, functions: Iterable[FunctionType]) -> list[FunctionType]:
        """Return `functions` and all that they lead to."""
        return follow(functions, self._lead, id)  # one code may wrap many functions

    def _lead(self, function: FunctionType) -> list[FunctionType]:
        if function not in self._next:
            held = [*self._named(function), *vars(function).values(), *inside(function)]
            held += [part for value in held for part in parts_of(value)]
            followed = [one for value in held for one in self._followed(value)]
            self._next[function] = list(dict.fromkeys(functions_in(followed)))
        return self._next[function]

    def _named(self, function: FunctionType) -> Iterator[object]:
        """Yield what names stand for: globals, imports inside, parts of own modules."""
        names = _code_names(function.__code__)
        space = function.__globals__
        values = [space[name] for name in names if name in space]
        _, tree = find_definition(function)
        for _, dotted in local_imports(tree, function) if tree is not None else ():
            module, _, name = dotted.rpartition(".")
            part = getattr(sys.modules.get(module), name, None)
            values.append(sys.modules.get(dotted, part))
        for value in values:
            yield value
            if isinstance(value, ModuleType) and self._is_followed(value.__name__):
                parts = vars(value)
                yield from (parts[name] for name in names if name in parts)

    def _followed(self, value: object) -> list[object]:
        """Return a function, or all members of a class or of an instance's class."""
        if type(value) is FunctionType:
            return [value] if self.is_own(value) else []
        cls = value if isinstance(value, type) else type(value)
        if cls not in self._members:
            follows = self.is_own(cls) and cls not in self._handed
            bases = [base for base in cls.__mro__ if follows and self.is_own(base)]
            self._members[cls] = [part for one in bases for part in vars(one).values()]
        return self._members[cls]

    def is_own(self, value: object) -> bool:
        """Whether a function or class is neither Python's own nor of a known package."""
        module = getattr(value, "__module__", None)
        return isinstance(module, str) and self._is_followed(module)

    def _is_followed(self, module: str) -> bool:
        return module.partition(".")[0] not in self._left_out


def parts_of(value: object) -> list[object]:
    """Return what a table, or an instance of a Python class, keeps."""
    if isinstance(value, dict):
        return list(dict.values(value))
    if type(value) is list or type(value) is tuple:
        return list(value)
    if isinstance(value, type | ModuleType | FunctionType):
        return []
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return []
    return list(held.values()) if type(held) is dict else []


def _code_names(code: CodeType) -> list[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return sorted(set(code.co_names).union(*map(_code_names, inner)))
