"""BOINC's rows of workunits and results, beside ours, as frozen values."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import Select, select, update

from stoilo.core.errors import InternalError
from stoilo.server.engines.interface import OutcomeKind, ReceivedResult
from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.boinctables import BoincOutcome, Validate
from stoilo.server.engines.stock.filestore import place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.project import StockProject

__all__ = [
    "OwnWorkunit",
    "ResultRow",
    "Uploads",
    "find_own",
    "note_boinc_row",
    "results_of",
]

_CHUNK: Final = 1024 * 1024
_MAX_BYTES: Final = re.compile(r"<max_nbytes>\s*([0-9]{1,15})(?:\.0*)?\s*</max_nbytes>")
_NAME: Final = re.compile(r"<name>\s*([A-Za-z0-9_][A-Za-z0-9_.-]{0,190})\s*</name>")


@dataclass(frozen=True, slots=True)
class OwnWorkunit:
    """Our row of a workunit, as far as it matters once it is made.

    Attributes:
        row: ours.
        name: of it.
        boinc_id: BOINC's row, 0 until it is noted.
        min_quorum: how many must agree.
        max_error: of the redundancy.
        max_total: of the redundancy.
        frozen: no further copy may be issued.
        outcome: None while it runs.
        attempts: how often its end could not be taken.
    """

    row: int
    name: str
    boinc_id: int
    min_quorum: int
    max_error: int
    max_total: int
    frozen: bool
    outcome: OutcomeKind | None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ResultRow:
    """BOINC's row of a result; what the host says is hostile.

    Attributes:
        output: name of the file that its host is to upload.
        max_bytes: of that file; BOINC's own handler only asks where uploads are certified.
    """

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
    output: str
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
    table, there = schema.workunits, boinctables.workunits
    which = table.c.name == name if name else table.c.boinc_id == boinc_id
    row = connection.execute(select(table).where(which)).first()
    if row is None and boinc_id:
        named = connection.scalar(select(there.c.name).where(there.c.id == boinc_id))
        unnoted = (table.c.name == named) & (table.c.boinc_id == 0)
        row = connection.execute(select(table).where(unnoted)).first()
    if row is None:
        return None
    return OwnWorkunit(
        row=row.id,
        name=row.name,
        boinc_id=row.boinc_id,
        min_quorum=row.min_quorum,
        max_error=row.max_error,
        max_total=row.max_total,
        frozen=bool(row.frozen),
        outcome=None if row.outcome is None else OutcomeKind(row.outcome),
        attempts=row.attempts,
    )


def note_boinc_row(database: Database, own: OwnWorkunit, boinc_id: int) -> OwnWorkunit:
    """Return a workunit with BOINC's row, which is written down if it was not yet."""
    if own.boinc_id:
        return own
    table = schema.workunits
    mine = (table.c.id == own.row) & (table.c.boinc_id == 0)
    with database.write() as connection:
        connection.execute(update(table).where(mine).values(boinc_id=boinc_id))
    return replace(own, boinc_id=boinc_id)


def _query() -> Select:  # type: ignore[type-arg]  # columns of two tables
    table, hosts = boinctables.results, boinctables.hosts
    return select(table, hosts.c.p_fpops).outerjoin(hosts, hosts.c.id == table.c.hostid)


def results_of(
    connection: Connection, *, workunit: int = 0, names: Sequence[str] = ()
) -> tuple[ResultRow, ...]:
    """Return a workunit's results, oldest first, or those of some names."""
    table = boinctables.results
    which = table.c.name.in_(names) if names else table.c.workunitid == workunit
    rows = connection.execute(_query().where(which).order_by(table.c.id)).all()
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
    """Return what a result's description says of its one file (BOINC's own text)."""
    text = description if isinstance(description, str) else description.decode("ascii")
    match = what.search(text)
    if match is None:
        raise InternalError("STO-B006", "a result's row describes no file")
    return match[1]


class Uploads:
    """The files that hosts have uploaded."""

    def __init__(self, project: StockProject) -> None:
        self._project = project

    @property
    def there(self) -> bool:
        """Whether the folder is there at all: its disk may not be mounted."""
        return self._project.upload.is_dir()

    def path_of(self, row: ResultRow) -> Path:
        """Return where a result's file lies, or would."""
        return place(self._project.upload, row.output, self._project.config.fanout)

    def received(self, row: ResultRow, workunit: str, path: Path) -> ReceivedResult:
        """Return a result and the size and digest of its file; raises ``OSError``.

        One longer than it may be is read no further: its size says so.
        """
        digest, size = hashlib.sha256(), 0
        with path.open("rb") as stream:
            while size <= row.max_bytes and (data := stream.read(_CHUNK)):
                digest.update(data)
                size += len(data)
        return ReceivedResult(
            name=row.name,
            workunit=workunit,
            path=path,
            size=size,
            digest=digest.hexdigest(),
            host_id=row.host_id,
            user_id=row.user_id,
            received_at=row.received_at,
            cpu_s=row.cpu_s,
            flops=row.flops,
        )
