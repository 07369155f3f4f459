"""What our own tables beside BOINC's say: what waits for BOINC, and what for the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, text

from stoilo.server.engines.stock.checkup.snapshot import Backlog, OwnView
from stoilo.server.engines.stock.schema import workunits

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["read_own"]

_UNCREATED: Final = """SELECT COUNT(*), MIN(created_at) FROM stoilo_workunit
 WHERE boinc_id = 0 AND outcome IS NULL"""
# An end has no time of its own: BOINC's row was last changed when it was taken.
_UNDELIVERED: Final = """SELECT COUNT(*), MIN({since}) FROM stoilo_workunit
 LEFT JOIN workunit ON workunit.id = stoilo_workunit.boinc_id WHERE undelivered = 1"""
_REFUSED: Final = """SELECT COUNT(*) FROM stoilo_workunit
 WHERE undelivered = 1 AND attempts > 0"""
# Ours say `templates/NAME`; 11 is where the name begins.
_FOREIGN: Final = """SELECT COUNT(*), MIN(stoilo_workunit.name) FROM stoilo_workunit
 JOIN workunit ON workunit.id = stoilo_workunit.boinc_id
 WHERE stoilo_workunit.outcome IS NULL AND (workunit.name <> stoilo_workunit.name
 OR SUBSTR(workunit.result_template_file, 11) <> stoilo_workunit.result_template)"""


def read_own(connection: Connection, now: int, since: str) -> OwnView:
    """Return what waits; nothing where no server has ever run on the project.

    Args:
        connection: to the project's database.
        now: s since 1970.
        since: SQL for when BOINC last changed a row of ``workunit``, s since 1970.
    """
    if not inspect(connection).has_table(workunits.name):
        return OwnView(known=False)
    foreign, name = connection.execute(text(_FOREIGN)).one()
    return OwnView(
        uncreated=_backlog(connection, _UNCREATED, now),
        undelivered=_backlog(connection, _UNDELIVERED.format(since=since), now),
        refused=int(connection.scalar(text(_REFUSED)) or 0),
        foreign=int(foreign),
        foreign_name=str(name or ""),
    )


def _backlog(connection: Connection, query: str, now: int) -> Backlog:
    count, oldest = connection.execute(text(query)).one()
    return Backlog(int(count), max(0, now - int(oldest)) if oldest else 0)
