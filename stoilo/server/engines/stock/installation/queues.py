"""What waits in a stock project's database, and whom for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, text

from stoilo.server.engines.stock.project.database import is_maria
from stoilo.server.engines.stock.project.tables import workunits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class Queue:
    """Workunits that wait for one program, and what it means when they wait long."""

    rows: str  # SQL: where they stand
    what: str  # who should take them
    advice: str
    # SQL: since when one waits; empty: since BOINC's row was last changed
    since: str = ""


_LOG: Final = "read the server's log (journalctl -u stoilo)"
QUEUES: Final = {
    "transitions": Queue(
        "workunit WHERE transition_time <= :now",
        "workunits wait for the transitioner",
        "see whether it lives; 'Duplicate entry' in its log is join_cache_level's fault",
        since="transition_time",
    ),
    "validations": Queue(
        "workunit WHERE need_validate = 1",
        "workunits wait for a validator",
        "see whether validators live and the entry points' socket answers",
    ),
    "assimilations": Queue(
        "workunit WHERE assimilate_state = 1",
        "finished workunits wait for an assimilator: it is slow, or does not run",
        "see whether they live, and database and disk are quick; nothing is lost",
    ),
    "deletions": Queue(
        "workunit WHERE file_delete_state = 1",
        "workunits wait for their files to be deleted",
        "see whether file_deleter lives and may write in upload",
    ),
    "creation": Queue(
        f"{workunits.name} WHERE boinc_id = 0 AND outcome IS NULL",
        "workunits wait for create_work: it fails, or stops half-way",
        f"{_LOG}: it says why; nothing is made twice",
        since="created_at",
    ),
    # an end has no time of its own: BOINC's row was last changed when it was taken
    "outcomes": Queue(
        f"{workunits.name} LEFT JOIN workunit ON workunit.id = boinc_id"
        " WHERE undelivered = 1",
        "ended workunits wait for the server, which is slow, stopped or in trouble",
        f"{_LOG}; see whether its disk is full",
    ),
}
_REFUSED: Final = """SELECT COUNT(*) FROM stoilo_workunit
 WHERE undelivered = 1 AND attempts > 0"""
# Ours are made from the template in our line; where there is none, it begins at 1.
_FOREIGN: Final = """SELECT COUNT(*), MIN(stoilo_workunit.name) FROM stoilo_workunit
 JOIN workunit ON workunit.id = stoilo_workunit.boinc_id
 WHERE stoilo_workunit.outcome IS NULL AND (workunit.name <> stoilo_workunit.name
 OR INSTR(stoilo_workunit.line, workunit.result_template_file) < 2)"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows that wait for one program."""

    count: int = 0
    oldest_s: int = 0  # how long the oldest has waited, s


@dataclass(frozen=True, slots=True)
class Queues:
    """What waits in the database."""

    trouble: str = ""  # why it said nothing; empty where it answered
    clock_ahead_s: float = 0.0  # of its clock before ours
    backlogs: Mapping[str, Backlog] = field(default_factory=dict)
    refused: int = 0  # ends that the server could not take when it was told
    foreign: int = 0  # open workunits whose row in BOINC somebody else has made
    foreign_name: str = ""  # one of them


def read_queues(connection: Connection, clock: Callable[[], float]) -> Queues:
    """Return what waits in a project's database."""
    ahead, now = _clock_ahead(connection, clock), int(clock())
    ours = inspect(connection).has_table(workunits.name)
    backlogs = {
        name: _backlog(connection, now, queue)
        for name, queue in QUEUES.items()
        if ours or not queue.rows.startswith(workunits.name)
    }
    if not ours:  # no server has run here yet
        return Queues(clock_ahead_s=ahead, backlogs=backlogs)
    foreign, name = connection.execute(text(_FOREIGN)).one()
    return Queues(
        clock_ahead_s=ahead,
        backlogs=backlogs,
        refused=int(connection.scalar(text(_REFUSED)) or 0),
        foreign=int(foreign),
        foreign_name=str(name or ""),
    )


def _backlog(connection: Connection, now: int, queue: Queue) -> Backlog:
    column = "workunit.mod_time"
    changed = f"UNIX_TIMESTAMP({column})" if is_maria(connection) else column
    query = text(f"SELECT COUNT(*), MIN({queue.since or changed}) FROM {queue.rows}")  # noqa: S608 - our own words
    count, oldest = connection.execute(query, {"now": now}).one()
    return Backlog(int(count), max(0, now - int(oldest)) if oldest else 0)


def _clock_ahead(connection: Connection, clock: Callable[[], float]) -> float:
    """Return how far the database's time is before ours, s."""
    if not is_maria(connection):
        return 0.0
    now = connection.exec_driver_sql("SELECT UNIX_TIMESTAMP(NOW(6))").scalar_one()
    return float(now) - clock()
