"""Which host keeps which sticky files: learnt from its requests, told in replies.

File names on the wire are the files' SHA-256: same name, same bytes, for ever, so a name
that was deleted may come again. What a host says that it keeps is a claim; it moves only
what this host is told. A name that was never sent to the host is answered like one that
nobody needs, so nobody learns which files exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, bindparam, delete, insert, select, update

from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write
from stoilo.server.engines.interface import ResultProgress

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy import Connection, Row, Select

    from stoilo.core.boinc.messages import FileInfo, SchedulerRequest

__all__ = [
    "KEEP_S",
    "MOST_FILES",
    "NAMES_READ",
    "Lease",
    "cap_bytes",
    "files_to_delete",
    "forget_lost_hosts",
    "held_files",
    "settle_leases",
]


KEEP_S: Final = 6 * 3600
"""After the result's last send, s."""

MOST_FILES: Final = 200
"""Kept by one host: each is named in every request of a BOINC client."""

MOST_BYTES: Final = 8 * 1024**3
DISK_SHARE: Final = 4
"""At most that part (1/n) of what is free on the host, with what it keeps already."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One sticky file at one host."""

    digest: str  # the file's name
    size: int  # bytes
    lent_at: int  # when it was last named to the host, s
    needed_until: int  # end of the lease, s
    wanted: bool  # a workunit, the release or the project still names it
    in_use: bool = False  # a result on this host needs it


def cap_bytes(held_bytes: int, disk_free_bytes: float) -> int:
    """Return how much one host is asked to keep, bytes.

    Args:
        held_bytes: what it keeps now.
        disk_free_bytes: what it says is free; 0: it does not say.
    """
    if disk_free_bytes <= 0:
        return MOST_BYTES
    return min(MOST_BYTES, int(held_bytes + min(disk_free_bytes, 1e18)) // DISK_SHARE)


def files_to_delete(leases: Iterable[Lease], cap: int, now: int) -> tuple[str, ...]:
    """Return which files a host need not keep, the longest unused first."""
    by_age = sorted(leases, key=lambda lease: (lease.lent_at, lease.digest))
    bytes_left = sum(lease.size for lease in by_age)
    files_left = len(by_age)
    gone = []
    for lease in by_age:
        over = bytes_left > cap or files_left > MOST_FILES
        ended = not lease.wanted and now >= lease.needed_until
        if not lease.in_use and (ended or over):
            gone.append(lease.digest)
            bytes_left -= lease.size
            files_left -= 1
    return tuple(gone)


NAMES_READ: Final = 1000
"""Sticky files of one request that are looked at."""

RENEWED_EVERY_S: Final = 600
LOST_AFTER_S: Final = 30 * 86_400
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def held_files(request: SchedulerRequest) -> tuple[str, ...]:
    """Return digests of the sticky inputs that a host says it has; programs are none."""
    names = request.sticky_files[:NAMES_READ]
    return tuple(dict.fromkeys(name for name in names if _DIGEST.fullmatch(name)))


def settle_leases(
    connection: Connection,
    host_id: int,  # who asks
    request: SchedulerRequest,  # says what it keeps
    sent: Iterable[FileInfo],  # files of this reply, which are never deleted by it
    now: int,  # s since 1970
) -> tuple[str, ...]:
    """Bring a host's leases up to date; return which files it shall delete."""
    held = set(held_files(request))
    sticky = {file.name: file for file in sent if file.sticky}
    rows = {row.digest: row for row in _load(connection, host_id)}
    if not (held or sticky or rows):
        return ()
    strange = sorted(held - rows.keys() - sticky.keys())
    kept = _learn(connection, host_id, rows, held, now)
    _lend(connection, host_id, kept, sticky, now)
    old = [row for row in kept.values() if row.digest not in sticky]
    total = sum(row.size for row in kept.values())
    cap = cap_bytes(total, request.host.disk_free_bytes)
    return (*_ended(connection, host_id, old, cap, now), *strange)


def _ended(
    connection: Connection,
    host_id: int,
    rows: Sequence[Row],  # type: ignore[type-arg]  # of `_load`
    cap: int,
    now: int,
) -> tuple[str, ...]:
    """Return which files end; what results use is looked up only where it matters."""
    ended = files_to_delete(_leases(rows), cap, now)
    if not ended:
        return ()
    return files_to_delete(_leases(rows, _in_use(connection, host_id)), cap, now)


def forget_lost_hosts(connection: Connection, now: int) -> None:
    """Forget leases that ended long ago: their hosts do not call any more.

    One that calls after all is told to delete what it names.
    """
    table = schema.leases
    old = table.c.needed_until < now - LOST_AFTER_S
    connection.execute(delete(table).where(old))


def _load(connection: Connection, host_id: int) -> list[Row]:  # type: ignore[type-arg]  # a lease, and whether its file is still known
    return list(connection.execute(_query(), {"host": host_id}).all())


@cache
def _query() -> Select[Any]:
    """Return the query for the leases of :host; made once, asked at every call."""
    table, files = schema.leases, schema.files
    return (
        select(table, files.c.digest.label("wanted"))
        .outerjoin(files, files.c.digest == table.c.digest)
        .where(table.c.host_id == bindparam("host"))
    )


def _is_there(row: Row, held: Collection[str], now: int) -> bool:  # type: ignore[type-arg]  # of `_load`
    """Whether the file is with the host, or may still be on its way there."""
    return row.digest in held or not (row.held or now >= row.needed_until)


def _learn(
    connection: Connection,
    host_id: int,
    rows: dict[str, Row],  # type: ignore[type-arg]  # of `_load`
    held: Collection[str],
    now: int,
) -> dict[str, Row]:  # type: ignore[type-arg]  # of `_load`
    """Note what has arrived and forget what the host has deleted; return the rest."""
    table = schema.leases
    mine = table.c.host_id == host_id
    arrived = [name for name, row in rows.items() if name in held and not row.held]
    gone = [name for name, row in rows.items() if not _is_there(row, held, now)]
    if arrived or gone:
        must_write(connection)
    if arrived:
        named = and_(mine, table.c.digest.in_(arrived))
        connection.execute(update(table).where(named).values(held=1))
    if gone:
        connection.execute(delete(table).where(mine, table.c.digest.in_(gone)))
    return {name: row for name, row in rows.items() if name not in gone}


def _lend(
    connection: Connection,
    host_id: int,
    rows: dict[str, Row],  # type: ignore[type-arg]  # of `_load`
    sticky: dict[str, FileInfo],
    now: int,
) -> None:
    """Begin or prolong the lease of every sticky file of this reply."""
    table = schema.leases
    fresh = [
        {
            "host_id": host_id,
            "digest": name,
            "size": file.nbytes,
            "lent_at": now,
            "needed_until": now + KEEP_S,
            "held": 0,
        }
        for name, file in sticky.items()
        if name not in rows
    ]
    if fresh:
        must_write(connection)
        connection.execute(insert(table), fresh)
    again = [
        name
        for name in sticky
        if name in rows and rows[name].lent_at + RENEWED_EVERY_S <= now
    ]
    if again:
        must_write(connection)
        connection.execute(
            update(table)
            .where(table.c.host_id == host_id, table.c.digest.in_(again))
            .values(lent_at=now, needed_until=now + KEEP_S)
        )


def _leases(
    rows: Iterable[Row],  # type: ignore[type-arg]  # of `_load`
    used: Collection[str] = (),
) -> list[Lease]:
    """Return rows as leases."""
    return [
        Lease(
            row.digest,
            row.size,
            row.lent_at,
            row.needed_until,
            wanted=row.wanted is not None,
            in_use=row.digest in used,
        )
        for row in rows
    ]


def _in_use(connection: Connection, host_id: int) -> frozenset[str]:
    """Return digests of the sticky files that results on the host need."""
    results, needs = schema.results, schema.workunit_files
    query = (
        select(needs.c.digest)
        .join(results, results.c.workunit_id == needs.c.workunit_id)
        .where(
            results.c.host_id == host_id,
            results.c.state == ResultProgress.IN_PROGRESS.value,
            needs.c.sticky == 1,
        )
    )
    return frozenset(connection.scalars(query))
