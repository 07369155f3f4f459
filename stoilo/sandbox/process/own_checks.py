"""Our own form check and comparator of trainings' answers, called in this process.

A validator module that is one of the texts in ``checks.txt`` (our code, written by
``python -m stoilo.learn.kernels.kept``), whatever numbers and names its literals hold, says
here what it says in a jail, for a thousandth of the cost. What runs is the release's text,
never the task's: of that only the literals are taken, by a grammar without names, and bounded
in what they make the check allocate. Every other module, and every value that is more than
text, numbers and arrays, goes to the jail as before.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, Final

from stoilo.core.codec.nodes import Ndarray, Node, from_node, item_bytes
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import StoiloError
from stoilo.sandbox.process.task_job import read_kept

CHECKS_FILE = "checks.txt"
MOST_BYTES: Final = 128 << 20  # of the arrays that a check decodes at once
MOST_BLOCK: Final = 1 << 20
MOST_DEPTH: Final = 4  # of a literal: each codec inside another doubles the work
LITERAL: Final = re.compile(
    r"^(expected|told|forms) = (\{[^=]*?\}|None)(?=\n(?:told = |\n\n))", re.MULTILINE
)
# Nothing is given back (``*+``): a long number could be cut in more ways than can be tried.
_TOKENS = re.compile(
    r"(?:'[A-Za-z0-9_. -]*+'|None|[0-9]++(?:\.[0-9]++)?+|[{}(),: \n])*+"
)
_PLAIN = frozenset({bool, int, float, str, type(None)})
_DECODED = "decoded bytes"
_SCOPE = {"init": "init_valid", "compare": "compare_valid"}
Check = Callable[..., bool]


def judge(
    source: bytes,
    modules: frozenset[str],
    op: str,
    entry: str,
    values: tuple[bytes, ...],
    most: int = MOST_BYTES,
) -> bool | None:
    """Return the verdict of our own check, None where a jail has to be asked.

    Args:
        source: the validator module (untrusted).
        modules: what the level at which it would run lets in.
        op: ``init`` or ``compare``.
        entry: the function's name.
        values: encoded and hostile, as many as `op` takes.
        most: bytes of the arrays that may be decoded.
    """
    checks = _find_checks(source, modules)
    if entry != _SCOPE[op] or entry not in checks or checks[_DECODED] > most:
        return None
    if len(values) != (1 if op == "init" else 2):
        return None
    try:
        nodes = [decode(value) for value in values]
        if not all(map(_is_plain, nodes)):
            return None
        found = [from_node(node) for node in nodes]
    except Exception:  # noqa: BLE001 - whatever a hostile value breaks, the jail says it
        return None
    return _ask(checks, entry, found)


def _ask(checks: Mapping[str, Any], entry: str, values: list[Any]) -> bool | None:
    # Answers without the ordered form may cost a comparator anything: the jail's business
    import numpy as np  # noqa: PLC0415 - `_find_checks` has loaded it

    with np.errstate(all="ignore"):
        if entry == _SCOPE["compare"] and not all(map(checks[_SCOPE["init"]], values)):
            return None
        return bool(checks[entry](*values))


def _is_plain(node: Node) -> bool:
    """Return whether a value is what an answer may be: fields, and arrays by name."""
    return type(node) is dict and all(
        type(name) is str and (type(field) in _PLAIN or _are_arrays(field))
        for name, field in node.items()
    )


def _are_arrays(node: Node) -> bool:
    return type(node) is dict and all(
        type(name) is str and type(array) is Ndarray for name, array in node.items()
    )


@functools.lru_cache(maxsize=64)
def _find_checks(source: bytes, modules: frozenset[str]) -> Mapping[str, Any]:
    """Return the functions of a module of ours with its literals; {} of another."""
    text = source.decode("utf-8", "replace")
    code = _compile_checks().get(LITERAL.sub(r"\1 = None", text))
    if code is None or not {"math", "numpy", "zlib"} <= modules:
        return {}
    try:
        literals = {name: _read_literal(word) for name, word in LITERAL.findall(text)}
        decoded = _check_literals(**literals)
        scope: dict[str, Any] = {"__name__": __name__}
        exec(code, scope)  # noqa: S102 - the release's own text
    except (
        ImportError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        StoiloError,
    ):
        return {}
    scope.update(literals)
    found = {name: scope[name] for name in _SCOPE.values() if name in scope}
    return {**found, _DECODED: decoded}


def _read_literal(text: str) -> Any:
    """Return what a literal (untrusted) holds; ValueError where it is anything else."""
    depth = deepest = 0
    for sign in re.findall(r"[{}()]", text):
        depth += 1 if sign in "{(" else -1
        deepest = max(deepest, depth)
    if deepest > MOST_DEPTH or not _TOKENS.fullmatch(text):
        raise ValueError
    try:
        return ast.literal_eval(text)
    except SyntaxError:
        raise ValueError from None


def _check_literals(expected: Any, told: Any, forms: Any = None) -> int:
    """Return the bytes of all arrays; raise where they are too many, or a block is."""
    every = [*expected["tensors"].values(), *expected["buffers"].values()]
    every += forms.values() if forms is not None else []
    decoded: int = sum(item_bytes(kind) * math.prod(shape) for kind, shape in every)
    if decoded > MOST_BYTES:
        raise ValueError
    if told is not None and _largest_block(told) > MOST_BLOCK:
        raise ValueError
    return decoded


def _largest_block(told: Mapping[str, Any]) -> int:
    inner = [_largest_block(one) for one in told.values() if isinstance(one, dict)]
    own: int = told.get("block", 0)
    return max(own, *inner, 0)


@functools.cache
def _compile_checks() -> Mapping[str, CodeType]:
    texts = Path(__file__).with_name(CHECKS_FILE).read_text("utf-8")
    return {
        text: compile(text, CHECKS_FILE, "exec", dont_inherit=True)
        for text in read_kept(texts)
    }
