"""The house: how many rooms, how full, what leads where. Run by `make lint`.

    python scripts/house.py

Prints a table of the product (`stoilo/**/*.py`; generated bindings left out) beside its
goals and fails where a figure is beyond its limit. A limit above its goal is a debt: it
is lowered, and raised only by what a whole new part needs (ADR 68: described libraries;
ADR 73 to 95: learning, and cells; ADR 96 to
103: traffic between nodes, a console, accounts; ADR 110, 111: languages, running again).
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from stoilo.cli.main import cli
from stoilo.core.codebook import load_codebook

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ROOT / "stoilo"
GENERATED = PRODUCT / "core" / "rpc"
LONG = 400
TRUSTED = ROOT / "tests" / "invariants" / "trusted_base.txt"


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        name: for people.
        value: as it is.
        limit: beyond it the script fails; low..high, high alone counts mostly.
        goal: what we want, as text.
    """

    name: str
    value: float
    limit: tuple[float, float]
    goal: str

    def holds(self) -> bool:
        """Say whether the figure is within its limit."""
        return self.limit[0] <= self.value <= self.limit[1]


def sources() -> dict[str, Path]:
    """Return every module of the product by dotted name."""
    found = {}
    for path in sorted(PRODUCT.rglob("*.py")):
        if GENERATED not in path.parents:
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def count_comments(path: Path) -> int:
    """Return how many comments speak to a reader; a linter's marks do not."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
    silent = ("# noqa", "# type:", "# fmt:", "# ruff:", "#!")
    texts = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return sum(not text.startswith(silent) for text in texts)


def imports_of(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the product's modules that a file imports anywhere, types' imports too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            circle = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    return found


def folder_pairs(
    graph: Mapping[str, set[str]], modules: Mapping[str, Path]
) -> list[tuple[str, str]]:
    """Return the folders that import from each other."""

    def folder(name: str) -> str:
        return str(modules[name].parent.relative_to(ROOT))

    ways = {(folder(a), folder(b)) for a, others in graph.items() for b in others}
    return sorted((a, b) for a, b in ways if a < b and (b, a) in ways)


def count_commands(command: click.Command) -> int:
    """Return how many commands there are at the ends of the groups."""
    if not isinstance(command, click.Group):
        return 1
    context = click.Context(command)
    inner = (
        command.get_command(context, one) for one in command.list_commands(context)
    )
    return sum(count_commands(one) for one in inner if one is not None)


def measure() -> list[Row]:
    """Return all figures; prints what a reader needs to mend the bad ones."""
    modules = sources()
    texts = {name: path.read_text("utf-8") for name, path in modules.items()}
    lines = [len(text.splitlines()) for text in texts.values()]
    graph = {
        name: {one for one in imports_of(path, modules) if one in modules} - {name}
        for name, path in modules.items()
    }
    rings, pairs = circles(graph), folder_pairs(graph, modules)
    for ring in rings:
        print("circle:", *ring)
    for pair in pairs:
        print("folders that import each other:", *pair)
    folders = [path.parent for path in modules.values()]
    fullest = max(set(folders), key=folders.count)
    server = folders.count(PRODUCT / "server")
    comments = sum(map(count_comments, modules.values()))
    # Packages' empty doors are no rooms: the median is of files with something in them.
    rooms = [n for n in lines if n > 1]
    base = [one for one in TRUSTED.read_text("utf-8").split() if one[:7] == "stoilo."]
    name = fullest.relative_to(ROOT)
    return [
        Row("files", len(modules), LIMITS["files"], "≤ 450"),
        Row("lines", sum(lines), LIMITS["lines"], "≤ 100,000"),
        Row(
            "file median, lines",
            statistics.median(rooms),
            LIMITS["median"],
            "150 to 250",
        ),
        Row(
            "files over 400 lines", sum(n > LONG for n in lines), LIMITS["long"], "few"
        ),
        Row(
            "comments in 100 lines",
            round(100 * comments / sum(lines), 1),
            LIMITS["comments"],
            "≥ 3",
        ),
        Row(f"fullest folder ({name})", folders.count(fullest), LIMITS["full"], "≤ 20"),
        Row("modules directly in server", server, LIMITS["server"], "≤ 12"),
        Row("circles of imports", len(rings), LIMITS["circles"], "0"),
        Row("folders that import each other", len(pairs), LIMITS["pairs"], "0"),
        Row("trusted base, modules", len(set(base)), LIMITS["base"], "≤ 60"),
        Row("error codes", len(load_codebook()), LIMITS["codes"], "≤ 300"),
        Row("commands", count_commands(cli), LIMITS["commands"], "≤ 60"),
    ]


ENDLESS = float("inf")
LIMITS: dict[str, tuple[float, float]] = {
    "files": (0, 743),
    "lines": (0, 153_800),
    "median": (150, 250),
    "long": (0, 6),
    "comments": (4.0, ENDLESS),
    "full": (0, 20),
    "server": (0, 12),
    "circles": (0, 0),
    "pairs": (0, 0),
    "base": (0, 61),
    "codes": (0, 300),
    "commands": (0, 79),
}
"""What may not be exceeded, low to high."""


def main() -> int:
    """Print the table; return 1 when something is beyond its limit."""
    rows = measure()
    for row in rows:
        low, high = row.limit
        bound = f"≥ {low:g}" if high == ENDLESS else f"≤ {high:,g}"
        mark = "" if row.holds() else "  BEYOND"
        print(f"{row.name:40} {row.value:>9,g}  goal {row.goal:10} limit {bound}{mark}")
    return 0 if all(row.holds() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
