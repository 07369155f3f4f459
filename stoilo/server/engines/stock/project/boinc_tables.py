"""BOINC's own tables: columns, numbers, rows as frozen values, and what we write into them.

They belong to the project: nothing here makes or changes a table. Names and numbers are
those of BOINC's database.

BOINC's daemons read, think and write without locks, and end when a statement of theirs is
refused. So each write is one row of BOINC's in a short transaction, and each may be
repeated: what it sets follows from our rows, never from what was there before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    bindparam,
    func,
    select,
    update,
)

from stoilo.core.errors import InternalError
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.project import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row
    from sqlalchemy.types import TypeEngine

    from stoilo.server.engines.stock.project.database import Database


class ServerState(IntEnum):
    """``result.server_state``."""

    INACTIVE = 1
    UNSENT = 2
    IN_PROGRESS = 4
    OVER = 5


class BoincOutcome(IntEnum):
    """``result.outcome``."""

    INIT = 0
    SUCCESS = 1
    COULDNT_SEND = 2
    CLIENT_ERROR = 3
    NO_REPLY = 4
    DIDNT_NEED = 5
    VALIDATE_ERROR = 6
    CLIENT_DETACHED = 7


class Validate(IntEnum):
    """``result.validate_state``."""

    INIT = 0
    VALID = 1
    INVALID = 2
    NO_CHECK = 3
    INCONCLUSIVE = 4
    TOO_LATE = 5


class StageState(IntEnum):
    """``workunit.assimilate_state``."""

    INIT = 0
    READY = 1
    DONE = 2


class FileDelete(IntEnum):
    """``file_delete_state``."""

    INIT = 0
    READY = 1
    DONE = 2
    ERROR = 3


class ErrorMask(IntFlag):
    """``workunit.error_mask``."""

    COULDNT_SEND = 1
    TOO_MANY_ERRORS = 2
    TOO_MANY_SUCCESS = 4
    TOO_MANY_TOTAL = 8
    CANCELLED = 16
    NO_CANONICAL = 32


metadata = MetaData()


def _table(name: str, /, **columns: type[TypeEngine[Any]]) -> Table:
    return Table(name, metadata, *(Column(key, kind) for key, kind in columns.items()))


apps = _table("app", id=Integer, name=String)
users = _table("user", id=Integer, project_prefs=LargeBinary)
hosts = _table("host", id=Integer, userid=Integer, rpc_time=Integer, p_fpops=Double)
host_app_versions = _table(
    "host_app_version",
    host_id=Integer,
    app_version_id=Integer,
    max_jobs_per_day=Integer,
    consecutive_valid=Integer,
)
workunits = _table(
    "workunit",
    id=Integer,
    name=String,
    xml_doc=LargeBinary,
    need_validate=Integer,
    canonical_resultid=Integer,
    transition_time=Integer,
    error_mask=Integer,
    file_delete_state=Integer,
    assimilate_state=Integer,
    max_error_results=Integer,
    max_total_results=Integer,
)
results = _table(
    "result",
    id=Integer,
    workunitid=Integer,
    server_state=Integer,
    outcome=Integer,
    hostid=Integer,
    userid=Integer,
    sent_time=Integer,
    received_time=Integer,
    name=String,
    cpu_time=Double,
    xml_doc_in=LargeBinary,
    exit_status=Integer,
    validate_state=Integer,
    app_version_id=Integer,
)


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
    table = tables.workunits
    which = table.c.name == name if name else table.c.boinc_id == boinc_id
    row = connection.execute(select(table).where(which)).first()
    if row is None and boinc_id:
        theirs = select(workunits.c.name).where(workunits.c.id == boinc_id)
        unnoted = (table.c.name == connection.scalar(theirs)) & (table.c.boinc_id == 0)
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


# Asked at every call of BOINC's scripts, so put together once.
_RESULTS: Final = (
    select(results, hosts.c.p_fpops)
    .outerjoin(hosts, hosts.c.id == results.c.hostid)
    .order_by(results.c.id)
)
_NAMED: Final = _RESULTS.where(results.c.name.in_(bindparam("names", expanding=True)))
_OF_WORKUNIT: Final = _RESULTS.where(results.c.workunitid == bindparam("workunit"))


def results_of(
    connection: Connection, *, workunit: int = 0, names: Sequence[str] = ()
) -> tuple[ResultRow, ...]:
    """Return a workunit's results, oldest first, or those of some names."""
    if names:
        rows = connection.execute(_NAMED, {"names": list(names)})
    else:
        rows = connection.execute(_OF_WORKUNIT, {"workunit": workunit})
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
    mine = tables.workunits
    values = {"max_error_results": own.max_error + refusals}
    frozen = connection.scalar(select(mine.c.frozen).where(mine.c.id == own.row))
    if not frozen:
        values["max_total_results"] = own.max_total + refusals
    theirs = update(workunits).where(workunits.c.id == own.boinc_id)
    connection.execute(theirs.values(values))


def give_back(database: Database, owed: Row) -> None:  # type: ignore[type-arg]  # a row of `results`
    """Let a host's record be at least what it was before a refusal."""
    table = host_app_versions
    record = (
        table.c.host_id == owed.host_id,
        table.c.app_version_id == owed.app_version_id,
    )
    least = {
        table.c.max_jobs_per_day: owed.jobs_per_day,
        table.c.consecutive_valid: owed.consecutive_valid,
    }
    with database.write() as connection:
        for column, value in least.items():
            mine = update(table).where(*record, column < value)
            connection.execute(mine.values({column: value}))


def freeze(database: Database, workunit: int) -> None:
    """Let BOINC make no further result; the workunit ends when it would need one."""
    own = tables.workunits
    made = select(func.count()).where(results.c.workunitid == workunit)
    with database.write() as connection:
        bound = {"max_total_results": int(connection.scalar(made) or 0)}
        theirs = update(workunits).where(workunits.c.id == workunit)
        connection.execute(theirs.values(bound))
        # in the same transaction, or a refusal could lift the bound
        mine = update(own).where(own.c.boinc_id == workunit)
        connection.execute(mine.values(frozen=1))


def ask_validator(database: Database, workunit: int) -> None:
    """Let BOINC's validator look at an open workunit's results once more."""
    still_open = (workunits.c.canonical_resultid == 0, workunits.c.error_mask == 0)
    query = update(workunits).where(workunits.c.id == workunit, *still_open)
    with database.write() as connection:
        connection.execute(query.values(need_validate=1))


def renew_description(
    database: Database, workunit: int, old: bytes, new: bytes
) -> None:
    """Replace a workunit's description unless it has changed meanwhile."""
    same = (workunits.c.id == workunit, workunits.c.xml_doc == old)
    with database.write() as connection:
        connection.execute(update(workunits).where(*same).values(xml_doc=new))
