"""Which function a module offers, and what a file of one's own holds besides it."""

from __future__ import annotations

import ast
import codecs
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.types import BOUNDS, Finding, Severity
from stoilo.policies.findings import FIRST_PLACE, Lines, make_finding

if TYPE_CHECKING:
    from collections.abc import Iterator


_ASSIGNMENTS = (ast.Assign, ast.AnnAssign)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class _Binding:
    """One name that the module body binds directly."""

    name: str
    node: ast.stmt


def last_function(tree: ast.Module) -> str:
    """Return the name of the last ``def`` directly in the module body, or ``""``."""
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return names[-1] if names else ""


def find_entry_problems(tree: ast.Module, lines: Lines, entry: str) -> list[Finding]:
    """Return findings about the entry named `entry` (empty: the last ``def``)."""
    name = entry or last_function(tree)
    if not name:
        message = "there is no function to call: no `def` directly in the module body"
        hint = "define a function that takes one dict"
        return [make_finding("STO-P030", FIRST_PLACE, message, hint)]
    bindings = [binding for binding in _bindings(tree) if binding.name == name]
    if not bindings:
        return [_missing(name)]
    return _check_signature(bindings[-1].node, lines, name)


def find_repeated_definitions(tree: ast.Module, lines: Lines) -> list[Finding]:
    """Return warnings for functions and classes whose name is bound again later."""
    last: dict[str, _Binding] = {}
    repeated: dict[str, _Binding] = {}
    for binding in _bindings(tree):
        before = last.get(binding.name)
        if before is not None and not isinstance(before.node, _ASSIGNMENTS):
            repeated[binding.name] = binding
        last[binding.name] = binding
    repeated.pop("_", None)  # by custom, a name for what nobody calls
    return [_bound_twice(binding, lines) for binding in repeated.values()]


def find_missing(tree: ast.Module, names: tuple[str, ...]) -> list[Finding]:
    """Return a finding for each of `names` that the module body does not bind."""
    counts = Counter(binding.name for binding in _bindings(tree))
    return [_missing(name) for name in names if name not in counts]


def find_main_block(tree: ast.Module, lines: Lines) -> list[Finding]:
    """Return findings for ``if __name__ == "__main__"`` blocks in the module body."""
    hint = "remove the block; `stoilo` clients drop it before they submit"
    message = "a block for running the file as a script is not part of a task"
    return [
        make_finding("STO-P033", lines.place(node.test), message, hint)
        for node in tree.body
        if isinstance(node, ast.If) and is_main_test(node.test)
    ]


def _missing(name: str) -> Finding:
    message = f"the module does not define {name[:60]!r}"
    hint = "define it with `def` directly in the module body"
    return make_finding("STO-P030", FIRST_PLACE, message, hint)


def _bound_twice(binding: _Binding, lines: Lines) -> Finding:
    name = binding.name[:60]
    message = f"{name!r} is defined above and bound again here; the last one counts"
    hint = "give each function its own name, so that readers see which one runs"
    place = lines.place(binding.node)
    return make_finding("STO-P034", place, message, hint, Severity.WARNING)


def _bindings(tree: ast.Module) -> Iterator[_Binding]:
    """Yield names bound directly in the module body by def, class or assignment."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield _Binding(node.name, node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield _Binding(target.id, node)
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.value is not None
        ):
            yield _Binding(node.target.id, node)


def _check_signature(node: ast.stmt, lines: Lines, name: str) -> list[Finding]:
    """Return a finding when an undecorated def cannot be called with one dict."""
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return []
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    keywords = [default for default in arguments.kw_defaults if default is None]
    takes_one = bool(positional) or arguments.vararg is not None
    if takes_one and required <= 1 and not keywords:
        return _check_steps(node, lines, name)
    message = f"{name!r} cannot be called with one argument, the dict of the task"
    hint = (
        f"write it as `def {name[:60]}(kwargs):`, or name another function as the entry"
    )
    return [make_finding("STO-P032", lines.place(node), message, hint)]


def _check_steps(node: ast.FunctionDef, lines: Lines, name: str) -> list[Finding]:
    """Return a finding when a def that yields states could not be given one back."""
    arguments = node.args
    named = {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}
    if "state" in named or arguments.kwarg is not None or not _yields(node):
        return []
    message = f"{name!r} yields, but takes no `state` to go on from"
    hint = (
        f"write it as `def {name[:60]}(kwargs, state=None):`, or return a list of what "
        "it yields"
    )
    return [make_finding("STO-P032", lines.place(node), message, hint)]


def _yields(node: ast.FunctionDef) -> bool:
    """Whether calling the function makes a generator."""
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(one, _SCOPES):
            waiting += ast.iter_child_nodes(one)
    return False


def is_main_test(test: ast.expr) -> bool:
    """Whether `test` is ``__name__ == "__main__"``, either way round."""
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    if not isinstance(test.ops[0], ast.Eq):
        return False
    sides = (test.left, test.comparators[0])
    names = [side.id for side in sides if isinstance(side, ast.Name)]
    values = [side.value for side in sides if isinstance(side, ast.Constant)]
    return names == ["__name__"] and values == ["__main__"]


# A file of somebody's own, made what a task is: no byte order mark, no script's ending
#
# Clients do this before they send or check; the server only refuses. Lines keep their
# numbers, so that findings point into the file.


@dataclass(frozen=True, slots=True)
class TaskText:
    """What a file becomes, and what was done to it, one note a change."""

    source: bytes
    notes: tuple[str, ...] = ()


def read_script(data: bytes) -> TaskText:
    r"""Return the task that the file's bytes `data` (the user's own) hold.

    Line ends become ``\n``; each ``if __name__ == "__main__":`` without ``else`` becomes as
    many empty lines. What cannot be parsed is left for the gate to explain.
    """
    if len(data) > BOUNDS.source_bytes:
        return TaskText(data)
    plain = data.removeprefix(codecs.BOM_UTF8)
    plain = plain.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    notes = () if plain == data else ("line ends and byte order mark are normalised",)
    blocks = _script_blocks(plain)
    lines = plain.split(b"\n")
    for block in blocks:
        for number in range(block.lineno, (block.end_lineno or block.lineno) + 1):
            lines[number - 1] = b""
    dropped = (
        f'line {block.lineno}: the block `if __name__ == "__main__":` is left out'
        for block in blocks
    )
    return TaskText(b"\n".join(lines), (*notes, *dropped))


def _script_blocks(data: bytes) -> list[ast.If]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data.decode("utf-8"), "<task>", feature_version=(3, 11))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return []
    return [
        node
        for node in tree.body
        if isinstance(node, ast.If) and not node.orelse and is_main_test(node.test)
    ]
