"""Names, order and text of a module's statements: canonical, readable, free of clashes."""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import tokenize

from stoilo.client.capture.refusals import refuse
from stoilo.client.capture.scopes import identifiers_of
from stoilo.client.capture.targets import ClassTarget, DataTarget, ImportTarget, Target


def reachable(entry: list[Target]) -> list[Target]:
    """Return everything the `entry` targets need, in the order a reader meets it last.

    Post-order over all dependencies: what is used stands above what uses it, except in
    cycles.
    """
    done: list[Target] = []
    seen: set[int] = set()

    def visit(target: Target) -> None:
        if id(target) in seen:
            return
        seen.add(id(target))
        for other in [*target.now, *target.later]:
            visit(other)
        done.append(target)

    for target in entry:
        visit(target)
    return done


def _closure(target: Target) -> set[int]:
    return {id(other) for other in reachable(target.now)} - {id(target)}


def order_targets(targets: list[Target]) -> list[Target]:
    """Return imports first, then each statement below what running it needs.

    Functions that a class body or decorator may call while the module loads drag along
    what they use, where no cycle forbids it.

    Raises:
        UsageError: ``STO-C010`` data that travel are needed while the module loads.
    """
    for target in targets:
        for other in target.now:
            if isinstance(other, DataTarget) and other.travels:
                refuse(
                    "STO-C010",
                    f"{other.where} is needed while {target.where} is being defined, "
                    "but data arrive only with the call",
                    "use it inside a function, or pass it in kwargs",
                )
    placed: set[int] = set()
    ordered: list[Target] = []
    waiting = list(targets)
    wide = {id(target): _closure(target) for target in targets}
    strict = {id(target): {id(other) for other in target.now} for target in targets}
    while waiting:
        chosen = _first_ready(waiting, wide, placed) or _first_ready(
            waiting, strict, placed
        )
        if chosen is None:
            refuse(
                "STO-C010",
                f"{waiting[0].where} and what it is built from need each other",
                "break the cycle: refer to one of them inside a function body",
            )
        waiting.remove(chosen)
        placed.add(id(chosen))
        ordered.append(chosen)
    imports = [target for target in ordered if isinstance(target, ImportTarget)]
    imports.sort(key=lambda target: (target.module, target.attribute, target.name))
    return imports + [t for t in ordered if not isinstance(t, ImportTarget)]


def _first_ready(
    waiting: list[Target], needs: dict[int, set[int]], placed: set[int]
) -> Target | None:
    for target in waiting:
        if needs[id(target)] <= placed:
            return target
    return None


def assign_names(targets: list[Target], undefined: set[str]) -> None:
    """Give every target its name and write it wherever the target is mentioned.

    A target keeps a name it is already known by when that shadows nothing; otherwise it
    gets a fresh one that occurs nowhere in the captured code.
    """
    inside = {
        id(target): identifiers_of(tree) if (tree := target.tree()) else set()
        for target in targets
    }
    everywhere = set(undefined).union(*inside.values())
    taken = set(dir(builtins)) | set(keyword.kwlist) | set(keyword.softkwlist)
    taken |= undefined
    for target in targets:
        target.name = _choose(target, inside, taken, everywhere)
        taken.add(target.name)
    for target in targets:
        for mention in target.mentions:
            mention.rename(target.name)


def _choose(
    target: Target, inside: dict[int, set[str]], taken: set[str], everywhere: set[str]
) -> str:
    for name in target.wanted:
        if name not in taken and _is_tidy(name) and _fits(name, target, inside):
            return name
    base = next((name.strip("_") for name in target.wanted if name.strip("_")), "data")
    base = base if base.isidentifier() else "data"
    number = 2
    while (name := f"{base}_{number}") in taken or name in everywhere:
        number += 1
    return name


def _is_tidy(name: str) -> bool:
    reserved = ("__", "_stoilo", "_abc_")  # in a task; `_helper` is a name like others
    return name.isidentifier() and not (name.startswith(reserved) or name[-1] == "_")


def _fits(name: str, target: Target, inside: dict[int, set[str]]) -> bool:
    """Whether no place that would be renamed to `name` has its own idea of it."""
    return all(
        mention.original == name
        or mention.unit is None
        or name not in inside.get(id(mention.unit), set())
        for mention in target.mentions
    )


# Lines longer than this are broken after commas; the gate refuses at ten times it
WRAP_CHARS = 1_000


def render_module(targets: list[Target]) -> tuple[str, tuple[str, ...]]:
    """Return the module text of ordered, named targets.

    Also of each of its lines where it was written (``file.py:12``), empty when it is ours.
    """
    parts, origins = list[str](), list[str]()
    previous: Target | None = None
    for target in targets:
        parts.append(_gap(previous, target))
        origins += [""] * len(parts[-1])  # nothing but line ends
        for statement in target.statements():
            lines = _own_lines(statement)
            text = _render(statement, target)
            parts.append(f"{text}\n")
            origins += _origins(text, lines, target.file)
        previous = target
    return "".join(parts), tuple(origins)


def _own_lines(statement: ast.stmt) -> list[int]:
    """Return the line of each node as its writer counts; 0 for those that we made."""
    return [getattr(node, "lineno", 0) for node in ast.walk(statement)]


def _origins(text: str, lines: list[int], file: str) -> list[str]:
    """Return for each line of a statement's new text where it was written."""
    found = [""] * (text.count("\n") + 1)
    if file:  # both trees are equal: the same nodes in the same order
        for node, line in zip(ast.walk(ast.parse(text).body[0]), lines, strict=True):
            new = getattr(node, "lineno", 0)
            if new and line and not found[new - 1]:
                found[new - 1] = f"{file}:{line}"
    return found


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
            "STO-C013",
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
