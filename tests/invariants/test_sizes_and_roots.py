"""A tree's size and root are only ever taken together, from one checkpoint.

A Merkle proof does not bind the size, so the functions that take size and root apart
may be called by their two doors beside them in `stoilo.audit.format.merkle` alone.
"""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "stoilo"
LOOSE = {"replay_inclusion", "replay_consistency"}
DOORS = {"audit/format/merkle.py"}


def names(source: str) -> set[str]:
    """Every name that a module mentions as code: imports, calls, attributes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name.rpartition(".")[2])
    return found


def test_no_module_takes_size_and_root_apart() -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if LOOSE & names(path.read_text())
    }
    assert users == DOORS


def test_a_module_that_did_would_be_noticed() -> None:
    assert LOOSE & names(
        "from stoilo.audit.format.merkle import replay_inclusion as check"
    )
    assert LOOSE & names("merkle.replay_consistency(1, 2, b'', [])")
    assert not LOOSE & names("'replay_inclusion'")
