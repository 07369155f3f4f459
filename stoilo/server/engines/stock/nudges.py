"""What we write into BOINC's own tables: all of it is here, one row a statement.

BOINC's daemons read, think and write without locks, and end when a statement of theirs is
refused. So each of these is one row of BOINC's in a short transaction, and each may be
repeated: what it sets follows from our rows, never from what was there before.

- `raise_bounds`: a refusal by a volunteer's opt-in is no error of anybody, but BOINC can
  only call it one; the workunit gets one error and one copy more for each. No daemon
  writes these columns, so nothing is overwritten. Done before BOINC hears the verdict,
  in the transaction that writes the refusal down: there is never one without the other.
- `give_back`: BOINC takes a host's run of valid results and one job a day above the daily
  quota for it; both are given back after BOINC's validator has written them.
- `freeze`: no copy may be issued that could outlive the admission, and BOINC knows no
  such date: the copies there are become the most there may be.
- `ask_again`: a validator's trouble is over; BOINC would only ask when a copy comes.
- `renew_file`: copies issued from now on carry the release metadata of today.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select, update

from stoilo.server.engines.stock import boinctables, schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.resultrows import OwnWorkunit

__all__ = ["Nudges", "raise_bounds"]


def raise_bounds(connection: Connection, own: OwnWorkunit, refusals: int) -> None:
    """Let BOINC allow a workunit so many errors and copies more than were asked for.

    One that is frozen gets no further copy for it.
    """
    table, mine = boinctables.workunits, schema.workunits
    values = {"max_error_results": own.max_error + refusals}
    frozen = connection.scalar(select(mine.c.frozen).where(mine.c.id == own.row))
    if not frozen:
        values["max_total_results"] = own.max_total + refusals
    connection.execute(update(table).where(table.c.id == own.boinc_id).values(values))


class Nudges:
    """Our few writes to a project's tables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def give_back(
        self, host: int, app_version: int, jobs_per_day: int, consecutive_valid: int
    ) -> None:
        """Let a host's record be at least what it was."""
        table = boinctables.host_app_versions
        row = (table.c.host_id == host, table.c.app_version_id == app_version)
        with self._database.write() as connection:
            for column, least in (
                (table.c.max_jobs_per_day, jobs_per_day),
                (table.c.consecutive_valid, consecutive_valid),
            ):
                connection.execute(
                    update(table).where(*row, column < least).values({column: least})
                )

    def freeze(self, workunit: int) -> None:
        """Let BOINC make no further copy; the workunit ends when it would need one.

        Our row says so in the same transaction, or a refusal could lift the bound.
        """
        table, copies = boinctables.workunits, boinctables.results
        mine = schema.workunits
        with self._database.write() as connection:
            count = connection.scalar(
                select(func.count()).where(copies.c.workunitid == workunit)
            )
            connection.execute(
                update(table)
                .where(table.c.id == workunit)
                .values(max_total_results=int(count or 0))
            )
            connection.execute(
                update(mine).where(mine.c.boinc_id == workunit).values(frozen=1)
            )

    def ask_again(self, workunit: int) -> None:
        """Let BOINC's validator look at an open workunit's results once more."""
        table = boinctables.workunits
        with self._database.write() as connection:
            connection.execute(
                update(table)
                .where(
                    table.c.id == workunit,
                    table.c.canonical_resultid == 0,
                    table.c.error_mask == 0,
                )
                .values(need_validate=1)
            )

    def renew_file(self, workunit: int, old: bytes, new: bytes) -> None:
        """Replace a workunit's description unless it has changed meanwhile."""
        table = boinctables.workunits
        with self._database.write() as connection:
            connection.execute(
                update(table)
                .where(table.c.id == workunit, table.c.xml_doc == old)
                .values(xml_doc=new)
            )
