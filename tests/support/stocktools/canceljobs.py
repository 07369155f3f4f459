"""BOINC's ``cancel_jobs``, played: ``MIN MAX`` or ``--name WU``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from tests.support.stocktools.database import FakeDatabase, read_clock

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["main"]

ARGUMENTS: Final = 2


def main(arguments: list[str], root: Path) -> int:
    """Run the tool in a project; returns its exit status."""
    if len(arguments) != ARGUMENTS:
        print("usage: cancel_jobs MIN MAX", file=sys.stderr)
        return 1
    database = FakeDatabase.of(root)
    try:
        return _cancel(database, arguments, read_clock(root))
    finally:
        database.close()


def _cancel(database: FakeDatabase, arguments: list[str], now: int) -> int:
    if arguments[0] == "--name":
        found = database.row("SELECT id FROM workunit WHERE name = ?", arguments[1])
        if found is None:
            print(f"No workunit named '{arguments[1]}'", file=sys.stderr)
            return 1
        low = high = int(found["id"])
    else:
        low, high = map(int, arguments)
    database.run(
        "UPDATE result SET server_state = 5, outcome = 5"
        " WHERE server_state <= 2 AND workunitid >= ? AND workunitid <= ?",
        low,
        high,
    )
    database.run(
        "UPDATE workunit SET error_mask = error_mask | 16, transition_time = ?"
        " WHERE id >= ? AND id <= ?",
        now,
        low,
        high,
    )
    return 0
