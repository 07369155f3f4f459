"""BOINC's rows of workunits and results as frozen values, and all that we write into them.

BOINC's daemons read, think and write without locks, and end when a statement of theirs is
refused. So each write is one row of BOINC's in a short transaction, and each may be
repeated: what it sets follows from our rows, never from what was there before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import Select, bindparam, func, select, update

from stoilo.core.errors import InternalError
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_tables import BoincOutcome, Validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.stock.project.database import Database


_MAX_BYTES: Final = re.compile(r"<max_nbytes>\s*([0-9]{1,15})(?:\.0*)?\s*</max_nbytes>")
_NAME: Final = re.compile(r"<name>\s*([A-Za-z0-9_][A-Za-z0-9_.-]{0,190})\s*</name>")


@dataclass(frozen=True, slots=True)
class OwnWorkunit:
    """Our row of a workunit, as far as it matters once it is made."""

    row: int  # ours
    name: str
    boinc_id: int  # BOINC's row, 0 until it is noted
    min_quorum: int  # how many must agree
    max_error: int  # of the redundancy
    max_total: int  # of the redundancy
    frozen: bool  # no further result may be issued
    outcome: OutcomeKind | None  # None while it runs
    # how often it could not be made, then how often its end could not be taken
    attempts: int = 0


# What it says as its row does.
_OWN: Final = ("name", "boinc_id", "min_quorum", "max_error", "max_total", "attempts")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """BOINC's row of a result; what the host says is hostile."""

    id: int
    name: str
    workunit: int
    server_state: int
    outcome: int
    validate_state: int
    exit_status: int
    host_id: int
    user_id: int
    app_version_id: int
    sent_at: int
    received_at: int
    cpu_s: float
    flops: float
    output: str  # name of the file that its host is to upload
    # of that file; BOINC's own handler only asks where uploads are certified
    max_bytes: int

    @property
    def in_doubt(self) -> bool:
        """Whether it came back and BOINC does not hold it invalid."""
        return (
            self.outcome == BoincOutcome.SUCCESS
            and self.validate_state != Validate.INVALID
        )


def find_own(
    connection: Connection, *, name: str = "", boinc_id: int = 0
) -> OwnWorkunit | None:
    """Return our row of a workunit by its name or BOINC's row, None if it is not ours.

    One that BOINC has and whose row there we have not noted yet is found by its name.
    """
    table, there = tables.workunits, boinc_tables.workunits
    which = table.c.name == name if name else table.c.boinc_id == boinc_id
    row = connection.execute(select(table).where(which)).first()
    if row is None and boinc_id:
        named = connection.scalar(select(there.c.name).where(there.c.id == boinc_id))
        unnoted = (table.c.name == named) & (table.c.boinc_id == 0)
        row = connection.execute(select(table).where(unnoted)).first()
    if row is None:
        return None
    own = {name: getattr(row, name) for name in _OWN}
    outcome = None if row.outcome is None else OutcomeKind(row.outcome)
    return OwnWorkunit(row=row.id, frozen=bool(row.frozen), outcome=outcome, **own)


def note_boinc_row(database: Database, own: OwnWorkunit, boinc_id: int) -> OwnWorkunit:
    """Return a workunit with BOINC's row, which is written down if it was not yet."""
    if own.boinc_id:
        return own
    table = tables.workunits
    mine = (table.c.id == own.row) & (table.c.boinc_id == 0)
    with database.write() as connection:
        made = {"boinc_id": boinc_id, "retry_at": 0, "attempts": 0}
        connection.execute(update(table).where(mine).values(made))
    return replace(own, boinc_id=boinc_id, attempts=0)


def _query() -> Select:  # type: ignore[type-arg]  # columns of two tables
    table, hosts = boinc_tables.results, boinc_tables.hosts
    return select(table, hosts.c.p_fpops).outerjoin(hosts, hosts.c.id == table.c.hostid)


# Asked at every call of BOINC's scripts, so put together once.
_NAMED: Final = (
    _query()
    .where(boinc_tables.results.c.name.in_(bindparam("names", expanding=True)))
    .order_by(boinc_tables.results.c.id)
)
_OF_WORKUNIT: Final = (
    _query()
    .where(boinc_tables.results.c.workunitid == bindparam("workunit"))
    .order_by(boinc_tables.results.c.id)
)


def results_of(
    connection: Connection, *, workunit: int = 0, names: Sequence[str] = ()
) -> tuple[ResultRow, ...]:
    """Return a workunit's results, oldest first, or those of some names."""
    if names:
        rows = connection.execute(_NAMED, {"names": list(names)}).all()
    else:
        rows = connection.execute(_OF_WORKUNIT, {"workunit": workunit}).all()
    return tuple(map(_result, rows))


def _result(row: Row) -> ResultRow:  # type: ignore[type-arg]  # columns of two tables
    return ResultRow(
        id=row.id,
        name=row.name,
        workunit=row.workunitid,
        server_state=row.server_state,
        outcome=row.outcome,
        validate_state=row.validate_state,
        exit_status=row.exit_status,
        host_id=row.hostid,
        user_id=row.userid,
        app_version_id=row.app_version_id,
        sent_at=row.sent_time,
        received_at=row.received_time,
        cpu_s=row.cpu_time,
        flops=row.p_fpops or 0.0,
        output=_described(row.xml_doc_in or b"", _NAME),
        max_bytes=int(_described(row.xml_doc_in or b"", _MAX_BYTES)),
    )


def _described(description: bytes | str, what: re.Pattern[str]) -> str:
    text = description if isinstance(description, str) else description.decode("ascii")
    match = what.search(text)
    if match is None:
        raise InternalError("STO-B003", "a result's row describes no file")
    return match[1]


def raise_bounds(connection: Connection, own: OwnWorkunit, refusals: int) -> None:
    """Let BOINC allow a workunit so many errors and results more than were asked for.

    One that is frozen gets no further result for it.
    """
    table, mine = boinc_tables.workunits, tables.workunits
    values = {"max_error_results": own.max_error + refusals}
    frozen = connection.scalar(select(mine.c.frozen).where(mine.c.id == own.row))
    if not frozen:
        values["max_total_results"] = own.max_total + refusals
    connection.execute(update(table).where(table.c.id == own.boinc_id).values(values))


def give_back(database: Database, owed: Row) -> None:  # type: ignore[type-arg]  # a row of `verdicts`
    """Let a host's record be at least what it was before a refusal."""
    table = boinc_tables.host_app_versions
    row = (
        table.c.host_id == owed.host_id,
        table.c.app_version_id == owed.app_version_id,
    )
    with database.write() as connection:
        for column, least in (
            (table.c.max_jobs_per_day, owed.jobs_per_day),
            (table.c.consecutive_valid, owed.consecutive_valid),
        ):
            connection.execute(
                update(table).where(*row, column < least).values({column: least})
            )


def freeze(database: Database, workunit: int) -> None:
    """Let BOINC make no further result; the workunit ends when it would need one."""
    table, results = boinc_tables.workunits, boinc_tables.results
    mine = tables.workunits
    made = select(func.count()).where(results.c.workunitid == workunit)
    with database.write() as connection:
        bound = {"max_total_results": int(connection.scalar(made) or 0)}
        connection.execute(update(table).where(table.c.id == workunit).values(bound))
        # in the same transaction, or a refusal could lift the bound
        connection.execute(
            update(mine).where(mine.c.boinc_id == workunit).values(frozen=1)
        )


def ask_validator(database: Database, workunit: int) -> None:
    """Let BOINC's validator look at an open workunit's results once more."""
    table = boinc_tables.workunits
    still_open = (table.c.canonical_resultid == 0, table.c.error_mask == 0)
    query = update(table).where(table.c.id == workunit, *still_open)
    with database.write() as connection:
        connection.execute(query.values(need_validate=1))


def renew_description(
    database: Database, workunit: int, old: bytes, new: bytes
) -> None:
    """Replace a workunit's description unless it has changed meanwhile."""
    table = boinc_tables.workunits
    query = update(table).where(table.c.id == workunit, table.c.xml_doc == old)
    with database.write() as connection:
        connection.execute(query.values(xml_doc=new))
