"""What tasks leave behind: leaves in the published log, rows in the engine's tables."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.proof import LeafKind, parse_leaf
from stoilo.audit.format.tiles import ENTRIES, TILE_WIDTH, decode_bundle, tile_at
from stoilo.audit.read.source import open_source

__all__ = ["Copy", "count_work_leaves", "read_copies", "successes"]

_COPIES = """
select w.name, r.name, coalesce(u.email, ''), r.host_id, r.state, r.outcome
from engine_result r join engine_workunit w on w.id = r.workunit_id
left join engine_user u on u.id = r.user_id order by r.id
"""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a workunit, as the engine has it.

    Attributes:
        workunit: its name: the task's id, `_`, the number of the attempt.
        name: the copy's own.
        email: of the account whose host has it, empty before it is handed out.
        host: that host's id, 0 before.
        state: of `CopyState`.
        outcome: of the engine, "success" once it was reported as computed.
    """

    workunit: str
    name: str
    email: str
    host: int
    state: str
    outcome: str


def count_work_leaves(http: str) -> int:
    """Return how many attempts the published log of a server has, once no more come.

    Unverified. Leaves of what has happened are gathered for half a second.
    """
    before, now = -1, _count(http)
    while now != before:
        time.sleep(1.0)
        before, now = now, _count(http)
    return now


def _count(http: str) -> int:
    source = open_source(http)
    size = int((source.checkpoint() or b"").split(b"\n")[1])
    found = []
    for number in range(-(-size // TILE_WIDTH)):
        tile = tile_at(ENTRIES, number, size)
        found += decode_bundle(source.tile(tile) or b"", tile.width)
    return sum(parse_leaf(leaf).kind is LeafKind.WORKUNIT for leaf in found)


def read_copies(data: Path) -> list[Copy]:
    """Return every copy that an embedded engine made, oldest first.

    Args:
        data: the server's data directory; the server may run.
    """
    path = data / "engine" / "engine.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60) as database:
        rows = database.execute(_COPIES).fetchall()
    return [Copy(*row) for row in rows]


def successes(copies: Collection[Copy]) -> dict[str, list[Copy]]:
    """Return workunit → its copies that came back computed."""
    found: dict[str, list[Copy]] = {}
    for copy in copies:
        if copy.outcome == "success":
            found.setdefault(copy.workunit, []).append(copy)
    return found
