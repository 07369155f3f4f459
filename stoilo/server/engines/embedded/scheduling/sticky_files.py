"""Which host keeps which sticky files, and for how long: learnt from requests, told in replies.

A file that a result brings stays with the host for a while after its last use, because the
next result often needs it again (a round of training, the next task of a map), and as long
as any workunit names it. It is given back when neither holds, or when the host's files are
more than its cap; never while a result on the host needs it.

Names on the wire are the files' SHA-256: same name, same bytes, for ever, so a name that was
deleted may come again. What a host says that it keeps is a claim; it moves only what this
host is told. A name that was never sent to the host is answered like one that nobody needs,
so nobody learns which files exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, bindparam, delete, exists, func, insert, select, update

from stoilo.executor.verifier.workunit import FLAVOR
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write
from stoilo.server.engines.interface import ResultProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Select

    from stoilo.core.boinc.messages import FileInfo, SchedulerRequest
    from stoilo.server.engines.embedded.db.schema import AnyRow


# After the result's last send, s
KEEP_S: Final = 6 * 3600
# Kept by one host: each is named in every request of a BOINC client
MOST_FILES: Final = 200
MOST_BYTES: Final = 8 * 1024**3
# At most that part (1/n) of what is free on the host, with what it keeps already
DISK_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class Lease:
    """One sticky file at one host."""

    digest: str  # the file's name
    size: int  # bytes
    lent_at: int  # when it was last named to the host, s
    needed_until: int  # end of the lease, s
    wanted: bool  # a workunit, the release or the project still names it
    in_use: bool = False  # a result on this host needs it


def cap_bytes(
    held_bytes: int,  # what it keeps now
    disk_free_bytes: float,  # what it says is free; 0: it does not say
) -> int:
    """Return how much one host is asked to keep, bytes."""
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


# Sticky files of one request that are looked at
NAMES_READ: Final = 1000
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
    rows = {row.digest: row for row in connection.execute(_query(), {"host": host_id})}
    strange = sorted(held - rows.keys() - sticky.keys())
    # deleted, unless the file may still be on its way
    gone = [
        name
        for name, row in rows.items()
        if name not in held and (row.held or now >= row.needed_until)
    ]
    kept = {name: row for name, row in rows.items() if name not in gone}
    arrived = [name for name, row in kept.items() if name in held and not row.held]
    _change(connection, host_id, arrived, held=1)
    _forget(connection, host_id, gone)
    again = [
        name
        for name in sticky
        if name in kept and kept[name].lent_at + RENEWED_EVERY_S <= now
    ]
    lent: dict[str, int] = {"lent_at": now, "needed_until": now + KEEP_S}
    _change(connection, host_id, again, **lent)
    fresh = [
        {"host_id": host_id, "digest": name, "size": file.nbytes, "held": 0} | lent
        for name, file in sticky.items()
        if name not in kept
    ]
    if fresh:
        must_write(connection)
        connection.execute(insert(schema.leases), fresh)
    cap = cap_bytes(
        sum(row.size for row in kept.values()), request.host.disk_free_bytes
    )
    old = [row for name, row in kept.items() if name not in sticky]
    ended = files_to_delete(_leases(old), cap, now)
    if ended:  # what results use is looked up only where it matters
        ended = files_to_delete(_leases(old, _in_use(connection, host_id)), cap, now)
    return (*ended, *strange)


def _change(
    connection: Connection, host_id: int, names: Sequence[str], **values: int
) -> None:
    table = schema.leases
    if names:
        must_write(connection)
        named = and_(table.c.host_id == host_id, table.c.digest.in_(names))
        connection.execute(update(table).where(named).values(values))


def _forget(connection: Connection, host_id: int, names: Sequence[str]) -> None:
    table = schema.leases
    if names:
        must_write(connection)
        named = and_(table.c.host_id == host_id, table.c.digest.in_(names))
        connection.execute(delete(table).where(named))


def forget_lost_hosts(connection: Connection, now: int) -> None:
    """Forget leases that ended long ago: their hosts do not call any more.

    One that calls after all is told to delete what it names.
    """
    table = schema.leases
    old = table.c.needed_until < now - LOST_AFTER_S
    connection.execute(delete(table).where(old))


@cache
def _query() -> Select[Any]:
    """Return the query for the leases of :host; made once, asked at every call."""
    table, files = schema.leases, schema.files
    return (
        select(table, files.c.digest.label("wanted"))
        .outerjoin(files, files.c.digest == table.c.digest)
        .where(table.c.host_id == bindparam("host"))
    )


def _leases(
    rows: Iterable[AnyRow],  # of `_query`
    used: Collection[str] = (),
) -> list[Lease]:
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


# BOINC's locality scheduling. What has waited long goes first whatever a host holds, so that
# no workunit starves because others' files are better spread. Among equals the lot decides:
# were they handed out in order, two accounts of one person that call one right after the
# other would get both results of a workunit, and could agree on a lie.
# Older results wait no longer for a host that has their files, s
PATIENCE_S: Final = 600
# Smaller files are sent as quickly as they are looked for
LARGE_BYTES: Final = 1024 * 1024
MOST_HELD: Final = 256


@dataclass(frozen=True, slots=True)
class Candidate:
    """An unsent result that may go to the host."""

    id: int  # row of the result; grows with its age
    workunit_id: int  # row of its workunit
    created_at: int  # of the workunit, s
    held_bytes: int = 0  # of its large files, what the host has
    lot: float = 0.0  # of its workunit, uniform in [0, 1): the smallest goes first


def in_order(candidates: Iterable[Candidate], now: int) -> list[Candidate]:
    """Return candidates, the best first. Pure; their order does not matter."""
    every = list(candidates)
    somewhere = any(one.held_bytes for one in every)

    def rank(one: Candidate) -> tuple[bool, int, float, int]:
        waited = somewhere and now - one.created_at >= PATIENCE_S
        local = 0 if waited else one.held_bytes
        return (not waited, -local, one.lot, one.id)

    return sorted(every, key=rank)


def local_first(
    connection: Connection,
    request: SchedulerRequest,  # says what the host keeps
    # query for `joined_results`, at most :most rows; they are looked for among all and
    # among those whose files the host has
    candidates: Select[Any],
    values: Mapping[str, object],  # of its parameters
    now: int,  # s since 1970
    # uniform in [0, 1); whoever foresees them can choose what he gets
    lots: Callable[[], float],
) -> list[AnyRow]:
    """Return candidates in the order in which they shall go, the best first."""
    held = _large_held(connection, request)
    rows = {row.id: row for row in connection.execute(candidates, values)}
    if held:
        near = connection.execute(candidates.where(_needs_any(held)), values)
        rows |= {row.id: row for row in near}
    drawn: dict[int, float] = {}
    for row in rows.values():
        if row.workunit_id not in drawn:
            drawn[row.workunit_id] = lots()
    sizes = _held_bytes(connection, set(drawn), held) if held else {}
    scored = [
        Candidate(
            row.id,
            row.workunit_id,
            row.wu_created_at,
            sizes.get(row.workunit_id, 0),
            drawn[row.workunit_id],
        )
        for row in rows.values()
    ]
    return [rows[one.id] for one in in_order(scored, now)]


def _large_held(connection: Connection, request: SchedulerRequest) -> tuple[str, ...]:
    """Return digests of the large files that the host says it has, and that we have."""
    said = held_files(request)
    if not said:
        return ()
    table = schema.files
    query = select(table.c.digest).where(
        table.c.digest.in_(said), table.c.size >= LARGE_BYTES
    )
    return tuple(connection.scalars(query.limit(MOST_HELD)))


def _needs_any(held: tuple[str, ...]) -> ColumnElement[bool]:
    """Return the condition for workunits that need one of these files.

    Archives of flavors do not count: every task of a level needs the same.
    """
    needs = schema.workunit_files
    return exists().where(
        needs.c.workunit_id == schema.workunits.c.id,
        needs.c.digest.in_(held),
        needs.c.open_name != FLAVOR,
    )


def _held_bytes(
    connection: Connection, workunits: set[int], held: tuple[str, ...]
) -> dict[int, int]:
    needs, files = schema.workunit_files, schema.files
    query = (
        select(needs.c.workunit_id, func.sum(files.c.size))
        .join(files, files.c.digest == needs.c.digest)
        .where(needs.c.workunit_id.in_(workunits), needs.c.digest.in_(held))
        .group_by(needs.c.workunit_id)
    )
    return {row: int(size) for row, size in connection.execute(query)}
