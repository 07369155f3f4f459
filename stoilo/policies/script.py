"""A file of somebody's own, made what a task is: no byte order mark, no script's ending.

Clients do this before they send or check; the server only refuses. Lines keep their
numbers, so that findings point into the file.
"""

from __future__ import annotations

import ast
import codecs
import warnings
from dataclasses import dataclass

from stoilo.core.limits import BOUNDS
from stoilo.policies.entry import is_main_test

__all__ = ["TaskText", "read_script"]


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
