"""What was said about results, and what is to be asked again.

BOINC asks about a result only when another one comes in. So questions that the server
could not answer yet are rows, and so is what a refusal has cost a host's record.
"""

from __future__ import annotations

from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, func, insert, select, update

from stoilo.core.errors import StoiloError
from stoilo.server.engines.interface import ResultVerdict
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_rows import ask_validator, give_back
from stoilo.server.engines.stock.project.boinc_tables import Validate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import BindParameter, Connection

    from stoilo.server.engines.interface import ResultCheck
    from stoilo.server.engines.stock.project.boinc_rows import (
        OwnWorkunit,
        ResultRow,
    )
    from stoilo.server.engines.stock.project.database import Database


_CODE_CHARS: Final = 16
_MESSAGE_CHARS: Final = 500
_FIRST_WAIT_S: Final = 60
_DOUBLINGS: Final = 6

# Asked at every call of BOINC's scripts, so put together once.
_RESULTS: Final[BindParameter[str]] = bindparam("results", expanding=True)
_PASSED: Final = select(tables.judged.c.result, tables.judged.c.digest).where(
    tables.judged.c.result.in_(_RESULTS)
)
_REFUSED: Final = select(
    tables.verdicts.c.result,
    tables.verdicts.c.verdict,
    tables.verdicts.c.code,
    tables.verdicts.c.message,
).where(tables.verdicts.c.result.in_(_RESULTS))


@dataclass(frozen=True, slots=True)
class Said:
    """What was said about a result."""

    # only those that are final: valid, invalid, not for this host
    verdict: ResultVerdict
    code: str = ""  # with it
    message: str = ""  # with it
    digest: str = ""  # of a valid one: plain SHA-256 of the bytes that passed


def find_said(connection: Connection, results: Sequence[str]) -> dict[str, Said]:
    """Return what was said about results; a "no" counts more than a "yes" before it."""
    wanted = {"results": list(results)}
    yes = connection.execute(_PASSED, wanted)
    said = {one.result: Said(ResultVerdict.VALID, digest=one.digest) for one in yes}
    no = connection.execute(_REFUSED, wanted)
    said |= {
        one.result: Said(ResultVerdict(one.verdict), one.code, one.message)
        for one in no
    }
    return said


def message_of(connection: Connection, result: str) -> tuple[str, str] | None:
    """Return code and message of a result that did not pass, None for others."""
    said = find_said(connection, [result]).get(result)
    if said is None or said.verdict is ResultVerdict.VALID:
        return None
    return said.code, said.message


def note_passed(
    connection: Connection, own: OwnWorkunit, result: str, digest: str, now: int
) -> None:
    """Write down which bytes of a result have passed, unless some have before."""
    if not find_said(connection, [result]):
        values = {"result": result, "workunit_id": own.row, "digest": digest}
        connection.execute(insert(tables.judged).values(**values, judged_at=now))


def note_verdict(
    connection: Connection,
    own: OwnWorkunit,
    row: ResultRow,
    check: ResultCheck,
    now: int,
) -> None:
    """Write down a "no" unless there is one; with a refusal, what it costs its host."""
    table = tables.verdicts
    known = select(table.c.result).where(table.c.result == row.name)
    if connection.scalar(known) is not None:
        return
    values: dict[str, object] = {
        "result": row.name,
        "workunit_id": own.row,
        "verdict": check.verdict.value,
        "code": check.code[:_CODE_CHARS],
        "message": check.message[:_MESSAGE_CHARS],
        "judged_at": now,
    }
    if check.verdict is ResultVerdict.NOT_FOR_THIS_HOST:
        values |= _record(connection, row)
    connection.execute(insert(table).values(values))


def _record(connection: Connection, row: ResultRow) -> dict[str, object]:
    table = boinc_tables.host_app_versions
    found = connection.execute(
        select(table.c.max_jobs_per_day, table.c.consecutive_valid).where(
            table.c.host_id == row.host_id,
            table.c.app_version_id == row.app_version_id,
        )
    ).first()
    if found is None:
        return {}
    return {
        "host_id": row.host_id,
        "app_version_id": row.app_version_id,
        "jobs_per_day": found.max_jobs_per_day,
        "consecutive_valid": found.consecutive_valid,
        "owed": 1,
    }


def count_refusals(connection: Connection, own: OwnWorkunit) -> int:
    """Return how many hosts have refused a workunit."""
    table = tables.verdicts
    query = select(func.count()).where(
        table.c.workunit_id == own.row,
        table.c.verdict == ResultVerdict.NOT_FOR_THIS_HOST.value,
    )
    return int(connection.scalar(query) or 0)


def ask_later(connection: Connection, own: OwnWorkunit, now: int) -> None:
    """Have BOINC ask again; after twice as long as the last time, if it has by now."""
    table = tables.asks
    mine = table.c.workunit_id == own.row
    before = connection.execute(select(table).where(mine)).first()
    if before is not None and not before.put and before.retry_at > now:
        return
    attempts = 0 if before is None else min(before.attempts + 1, _DOUBLINGS)
    connection.execute(delete(table).where(mine))
    connection.execute(
        insert(table).values(
            workunit_id=own.row,
            retry_at=now + _FIRST_WAIT_S * 2**attempts,
            attempts=attempts,
        )
    )


def hasten(connection: Connection, names: Collection[str]) -> None:
    """Have questions put, ends taken and outcomes delivered that wait for validators."""
    own, table = tables.workunits, tables.asks
    named = own.c.name.in_(list(names))
    rows = select(own.c.id).where(named)
    connection.execute(
        update(table).where(table.c.workunit_id.in_(rows)).values(retry_at=0)
    )
    made = (own.c.undelivered == 1) | (own.c.boinc_id != 0)
    connection.execute(update(own).where(named, made).values(retry_at=0))


def forget_judged(connection: Connection, rows: Sequence[int]) -> None:
    """Remove all that was said about workunits' results, and what was to be asked."""
    for table in (
        tables.verdicts,
        tables.judged,
        tables.asks,
        tables.kept_results,
    ):
        connection.execute(delete(table).where(table.c.workunit_id.in_(rows)))


_AT_ONCE: Final = 200
_PUT_S: Final = 3600


class Retries:
    """The engine's own rounds; each returns whether there was something to do.

    Attributes:
        told: names of workunits of which there is more to say.
    """

    def __init__(
        self,
        database: Database,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._now = now
        self.told: SimpleQueue[str] = SimpleQueue()

    def hear_answers(self) -> bool:
        """Have questions put anew whose validators have run, as `told`."""
        count = min(self.told.qsize(), _AT_ONCE)
        names = {self.told.get() for _ in range(count)}
        if not names:
            return False
        try:
            with self._database.write() as connection:
                hasten(connection, names)
        except StoiloError:  # the database is away; the names are not
            for name in names:
                self.told.put(name)
            raise
        return True

    def pay_debts(self) -> bool:
        """Give hosts back what a refusal cost them, once BOINC has taken it."""
        table, results = tables.verdicts, boinc_tables.results
        query = select(table).where(table.c.owed == 1).limit(_AT_ONCE)
        with self._database.read() as connection:
            owed = connection.execute(query).all()
            state = {
                row.result: connection.scalar(
                    select(results.c.validate_state).where(results.c.name == row.result)
                )
                for row in owed
            }
        taken = [row for row in owed if state[row.result] in {None, Validate.INVALID}]
        for row in taken:
            give_back(self._database, row)
            with self._database.write() as connection:
                connection.execute(
                    update(table).where(table.c.result == row.result).values(owed=0)
                )
        return bool(taken)

    def ask_again(self) -> bool:
        """Let BOINC ask about results that the server could not judge."""
        table, own = tables.asks, tables.workunits
        query = (
            select(table.c.workunit_id, own.c.boinc_id, own.c.outcome)
            .join(own, own.c.id == table.c.workunit_id)
            .where(table.c.retry_at <= self._now())
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            due = connection.execute(query).all()
        for row in due:
            if row.outcome is None:
                ask_validator(self._database, row.boinc_id)
            self._set_aside(row.workunit_id, over=row.outcome is not None)
        return bool(due)

    def _set_aside(self, row: int, *, over: bool) -> None:
        """Forget a question, or put it again should BOINC not."""
        table = tables.asks
        mine = table.c.workunit_id == row
        again = update(table).where(mine).values(retry_at=self._now() + _PUT_S, put=1)
        with self._database.write() as connection:
            connection.execute(delete(table).where(mine) if over else again)
