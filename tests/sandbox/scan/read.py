"""List what the source of a level's libraries does with its arguments, with who read it.

    python tests/sandbox/scan/read.py LEVEL > new; mv new tests/sandbox/scan/LEVEL.txt

A paragraph of a list is a reason and the functions it holds for, each with what was found
in it and a digest of its text. What is new, or changed in a new version of a library,
comes last, under `UNREAD`: read it, then close it, withhold it, or give it a reason. A
level lists what the narrower ones do not. A line stays while its function is there: another
patch release of the library may have that text.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

from source_scan import Finding, scan_level

from stoilo.policies.levels import load_level
from stoilo.sandbox.language.runtime import prepare_runtime

FOLDER = Path(__file__).parent
LEVELS = ("pure", "numeric", "tensor")
UNREAD = "UNREAD"
WIDTH = 94


def parse(text: str) -> dict[Finding, str]:
    """Return the findings of a list with their reasons."""
    found = {}
    for paragraph in text.split("\n\n"):
        lines = paragraph.strip().split("\n")
        reason = " ".join(line[2:] for line in lines if line.startswith("# "))
        for line in lines:
            if line and not line.startswith("#"):
                name, patterns, digest = line.split(" | ")
                found[Finding(name, tuple(patterns.split(", ")), digest)] = reason
    return found


def committed(level: str) -> dict[Finding, str]:
    """Return the committed findings of `level` and every narrower one."""
    names = LEVELS[: LEVELS.index(level) + 1]
    known: dict[Finding, str] = {}
    for path in (FOLDER / f"{name}.txt" for name in names):
        known |= parse(path.read_text()) if path.exists() else {}
    return known


def find(level: str) -> list[Finding]:
    """Scan the libraries of a level as this machine has them."""
    loaded = load_level(level)
    runtime = prepare_runtime(loaded)
    return scan_level(loaded, runtime.facades.modules.values())


def render(found: dict[Finding, str]) -> str:
    """Return the list, with what is unread at the end."""
    reasons = sorted(set(found.values()), key=lambda reason: (reason == UNREAD, reason))
    paragraphs = []
    for reason in reasons:
        head = textwrap.wrap(reason, WIDTH, initial_indent="# ", subsequent_indent="# ")
        lines = [
            f"{item.name} | {', '.join(item.patterns)} | {item.digest}"
            for item in sorted(found)
            if found[item] == reason
        ]
        paragraphs.append("\n".join([*head, *lines]))
    return "\n\n".join(paragraphs) + "\n"


def main() -> None:
    """Print the list of the level named on the command line."""
    level = sys.argv[1]
    narrower = LEVELS[: LEVELS.index(level)]
    before = committed(narrower[-1]) if narrower else {}
    known = committed(level)
    found = {
        item: known.get(item, UNREAD) for item in find(level) if item not in before
    }
    names = {item.name for item in found}
    others = {
        item: reason
        for item, reason in known.items()
        if item not in before and item.name in names
    }
    sys.stdout.write(render(others | found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
