"""BOINC's statistics export: who helped how much, for sites that add projects up.

Only accounts whose owners agreed appear, with the names they chose, never with addresses;
their hosts without names or CPIDs of their own. Totals count everybody. Written at most
once a day, each file by rename, ``tables.xml`` last: it says when the others were made.
Source: BOINC, ``sched/db_dump.cpp``, https://github.com/BOINC/boinc/wiki/CreditStats.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
from typing import TYPE_CHECKING, BinaryIO, Final

from sqlalchemy import func, select

from stoilo.core.boinc.xml import escape
from stoilo.core.digests import Domain, domain_digest
from stoilo.core.errors import DeniedError, InternalError
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.people.people import shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.embedded.database import Database

__all__ = ["STATS_FILES", "Statistics"]

EVERY_S: Final = 86_400
BATCH: Final = 500
TABLES: Final = "tables.xml"
STATS_FILES: Final = {
    TABLES: "text/xml",
    "user.xml.gz": "application/gzip",
    "host.xml.gz": "application/gzip",
}
"""What is served, with its media type."""


class Statistics:
    """The exported files of one project, in a directory of their own."""

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._directory = directory

    def export_if_due(self, now: int) -> bool:
        """Write all files unless those there are younger than a day; say if so.

        Raises:
            InternalError: ``STO-E003`` or ``STO-E072``; old files stay.
        """
        with contextlib.suppress(OSError):
            made_at = (self._directory / TABLES).stat().st_mtime
            if 0 <= now - made_at < EVERY_S:
                return False
        try:
            self._export(now)
        except OSError as error:
            raise InternalError(
                "STO-E072", f"the statistics cannot be written (errno {error.errno})"
            ) from error
        return True

    def find(self, name: str) -> Path:
        """Return the file of an (untrusted) name; raises ``STO-E071``."""
        path = self._directory / name
        if name not in STATS_FILES or not path.is_file():
            raise DeniedError("STO-E071", "there are no such statistics")
        return path

    def _export(self, now: int) -> None:
        """Write all files from one state of the database."""
        self._directory.mkdir(exist_ok=True)
        with self._database.read() as connection:
            users, hosts = _users(connection), _hosts(connection)
            self._write("user.xml.gz", lambda out: _zip(out, "users", users), now)
            self._write("host.xml.gz", lambda out: _zip(out, "hosts", hosts), now)
            text = _tables(connection, now).encode()
            self._write(TABLES, lambda out: out.write(text), now)

    def _write(self, name: str, fill: Callable[[BinaryIO], object], now: int) -> None:
        """Give a file its new content, whole or not at all; its time is `now`."""
        part = self._directory / f".{name}.{secrets.token_hex(4)}"
        try:
            with part.open("xb") as stream:
                fill(stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.utime(part, (now, now))
            part.replace(self._directory / name)
        finally:
            part.unlink(missing_ok=True)


def _zip(out: BinaryIO, root: str, elements: Iterator[str]) -> None:
    """Write elements inside a root, compressed."""
    with gzip.GzipFile("", "wb", fileobj=out, mtime=0) as stream:
        stream.write(f"<{root}>\n".encode())
        for element in elements:
            stream.write(element.encode())
        stream.write(f"</{root}>\n".encode())


def _users(connection: Connection) -> Iterator[str]:
    """Yield the accounts whose owners agreed."""
    users, people = schema.users, schema.people
    query = (
        select(users.c.id, users.c.created_at, people)
        .join(people, people.c.user_id == users.c.id)
        .where(people.c.exported == 1, people.c.banned_at == 0)
        .order_by(users.c.id)
    )
    for row in connection.execute(query).yield_per(BATCH):
        name = shown_name(row.id, row.name)
        yield _element(
            "user",
            ("id", row.id),
            ("name", name),
            ("create_time", row.created_at),
            *_credit(row),
            ("cpid", row.export_id),
        )


def _hosts(connection: Connection) -> Iterator[str]:
    """Yield the hosts of those accounts."""
    hosts, people, records = schema.hosts, schema.people, schema.host_records
    query = (
        select(hosts, people.c.export_id, records)
        .join(people, people.c.user_id == hosts.c.user_id)
        .join(records, records.c.host_id == hosts.c.id)
        .where(people.c.exported == 1, people.c.banned_at == 0)
        .order_by(hosts.c.id)
    )
    for row in connection.execute(query).yield_per(BATCH):
        own = f"{row.export_id} {row.id}".encode()
        yield _element(
            "host",
            ("id", row.id),
            ("userid", row.user_id),
            *_credit(row),
            ("rpc_time", row.seen_at),
            ("create_time", row.created_at),
            ("p_ncpus", row.ncpus),
            ("p_vendor", row.vendor),
            ("p_model", row.model),
            ("p_fpops", f"{row.fpops:.0f}"),
            ("os_name", row.os_name),
            ("os_version", row.os_version),
            ("host_cpid", domain_digest(Domain.TOKEN, b"exported host", own)[:32]),
        )


def _tables(connection: Connection, now: int) -> str:
    """Return what is true of everybody together."""
    people, hosts, users = schema.people, schema.hosts, schema.users
    total = connection.scalar(select(func.sum(people.c.total_credit)))
    return _element(
        "tables",
        ("update_time", now),
        ("nusers_total", connection.scalar(select(func.count(users.c.id)))),
        ("nteams_total", 0),
        ("nhosts_total", connection.scalar(select(func.count(hosts.c.id)))),
        ("total_credit", f"{total or 0.0:.6f}"),
    )


def _credit(row: Row) -> tuple[tuple[str, object], ...]:  # type: ignore[type-arg]  # with credit
    """Return the elements of a standing."""
    return (
        ("total_credit", f"{row.total_credit:.6f}"),
        ("expavg_credit", f"{row.average_credit:.6f}"),
        ("expavg_time", row.average_at),
    )


def _element(tag: str, *fields: tuple[str, object]) -> str:
    """Return one element with its leaves on lines of their own."""
    inner = "".join(
        f" <{name}>{escape(str(value))}</{name}>\n" for name, value in fields
    )
    return f"<{tag}>\n{inner}</{tag}>\n"
