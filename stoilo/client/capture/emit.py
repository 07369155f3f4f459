"""The text of a module: canonical, readable, one statement a target."""

from __future__ import annotations

import ast
import io
import tokenize

from stoilo.client.capture.refusals import refuse
from stoilo.client.capture.targets import ClassTarget, ImportTarget, Target

WRAP_CHARS = 1_000
"""Lines longer than this are broken after commas; the gate refuses at ten times it."""


def render_module(targets: list[Target]) -> str:
    """Return the module text of ordered, named targets."""
    parts: list[str] = []
    previous: Target | None = None
    for target in targets:
        parts.append(_gap(previous, target))
        parts += [
            f"{_render(statement, target)}\n" for statement in target.statements()
        ]
        previous = target
    return "".join(parts)


def _gap(previous: Target | None, target: Target) -> str:
    if previous is None:
        return ""
    if isinstance(previous, ImportTarget) and isinstance(target, ImportTarget):
        return ""
    small = not any(isinstance(item, ClassTarget) for item in (previous, target))
    lines = [_is_line(previous), _is_line(target)]
    return "" if small and all(lines) else "\n\n"


def _is_line(target: Target) -> bool:
    statements = target.statements()
    simple = (ast.Assign, ast.Import, ast.ImportFrom)
    return all(isinstance(statement, simple) for statement in statements)


def _render(statement: ast.stmt, target: Target) -> str:
    ast.fix_missing_locations(statement)
    try:
        text = wrap_long_lines(ast.unparse(statement))
        same = ast.dump(ast.parse(text).body[0]) == ast.dump(statement)
    except (ValueError, SyntaxError, RecursionError):
        same = False
    if not same:
        refuse(
            "STO-C019",
            f"{target.where} cannot be written down faithfully",
            "simplify its longest expression or f-string: give parts of it a name",
        )
    return text


def wrap_long_lines(text: str) -> str:
    """Break very long lines after commas inside brackets; the meaning stays."""
    if all(len(line) <= WRAP_CHARS for line in text.split("\n")):
        return text
    rows = text.split("\n")
    breaks: list[tuple[int, int]] = []
    depth, start = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
            line, column = token.end
            if line != start[0]:
                start = (line, 0)
            if token.string == "," and depth and column - start[1] > WRAP_CHARS // 2:
                breaks.append(token.end)
                start = token.end
    for line, column in reversed(breaks):
        row = rows[line - 1]
        rows[line - 1] = row[:column] + "\n" + row[column:].lstrip(" ")
    return "\n".join(rows)
