"""List what the source of a level's libraries does with its arguments, with who read it.

    python tests/sandbox/scan/read.py LEVEL > new; mv new tests/sandbox/scan/LEVEL.txt

The form of a list: `stoilo.flavors.describing.read_list`. A level lists what the narrower
ones do not. A line stays while its function is there: another patch release of the library
may have that text.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stoilo.flavors.describing.read_list import (
    UNREAD,
    parse_read_list,
    render_read_list,
)
from stoilo.flavors.describing.source_scan import Finding, scan_level
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.runtime import prepare_runtime

FOLDER = Path(__file__).parent
LEVELS = ("pure", "numeric", "tensor")


def committed(level: str) -> dict[Finding, str]:
    """Return the committed findings of `level` and every narrower one."""
    names = LEVELS[: LEVELS.index(level) + 1]
    known: dict[Finding, str] = {}
    for path in (FOLDER / f"{name}.txt" for name in names):
        known |= parse_read_list(path.read_text()) if path.exists() else {}
    return known


def find(level: str) -> list[Finding]:
    """Scan the libraries of a level as this machine has them."""
    loaded = load_level(level)
    runtime = prepare_runtime(loaded)
    return scan_level(loaded, runtime.facades.modules.values())


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
    sys.stdout.write(render_read_list(others | found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
