"""What was said about results, and what is to be asked again.

BOINC asks about a result only when another one comes in. So questions that the server
could not answer yet are rows, and so is what a refusal has cost a host's record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, func, insert, select, update

from stoilo.server.engines.interface import ResultVerdict
from stoilo.server.engines.stock.project import boinc_tables, tables

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from stoilo.server.engines.interface import ReceivedResult, ResultCheck
    from stoilo.server.engines.stock.project.boinc_tables import ResultRow


CODE_CHARS: Final = 16
MESSAGE_CHARS: Final = 500
_FIRST_WAIT_S: Final = 60
_DOUBLINGS: Final = 6

# What is written down of a result that passed, of its `ReceivedResult`.
KEPT: Final = (
    *("name", "size", "digest"),
    *("host_id", "user_id", "received_at", "cpu_s", "flops"),
)
# Asked at every call of BOINC's scripts, so put together once.
_SAID: Final = select(
    *(tables.results.c[name] for name in ("name", "verdict", "code", "message")),
    tables.results.c.digest,
).where(tables.results.c.name.in_(bindparam("names", expanding=True)))


@dataclass(frozen=True, slots=True)
class Said:
    """What was said about a result."""

    # only those that are final: valid, invalid, not for this host
    verdict: ResultVerdict
    code: str = ""  # with it
    message: str = ""  # with it
    digest: str = ""  # of a valid one: plain SHA-256 of the bytes that passed


def find_said(connection: Connection, results: Sequence[str]) -> dict[str, Said]:
    """Return what was said about results."""
    rows = connection.execute(_SAID, {"names": list(results)})
    return {
        row.name: Said(ResultVerdict(row.verdict), row.code, row.message, row.digest)
        for row in rows
    }


def message_of(connection: Connection, result: str) -> tuple[str, str] | None:
    """Return code and message of a result that did not pass, None for others."""
    said = find_said(connection, [result]).get(result)
    if said is None or said.verdict is ResultVerdict.VALID:
        return None
    return said.code, said.message


def note_passed(connection: Connection, workunit: int, result: ReceivedResult) -> None:
    """Write down which bytes of a result have passed, unless something was said before."""
    if not find_said(connection, [result.name]):
        values = {name: getattr(result, name) for name in KEPT}
        values |= {"workunit_id": workunit, "verdict": ResultVerdict.VALID.value}
        connection.execute(insert(tables.results).values(values))


def note_verdict(
    connection: Connection, workunit: int, row: ResultRow, check: ResultCheck
) -> None:
    """Write down a "no" unless there is one; with a refusal, what it costs its host.

    It counts more than a "yes" before it.
    """
    table = tables.results
    said = find_said(connection, [row.name]).get(row.name)
    if said is not None and said.verdict is not ResultVerdict.VALID:
        return
    values: dict[str, object] = {
        "verdict": check.verdict.value,
        "code": check.code[:CODE_CHARS],
        "message": check.message[:MESSAGE_CHARS],
    }
    if check.verdict is ResultVerdict.NOT_FOR_THIS_HOST:
        values |= _record(connection, row)
    if said is None:
        values |= {"name": row.name, "workunit_id": workunit}
        connection.execute(insert(table).values(values))
    else:
        connection.execute(update(table).where(table.c.name == row.name).values(values))


def _record(connection: Connection, row: ResultRow) -> dict[str, object]:
    table = boinc_tables.host_app_versions
    query = select(table.c.max_jobs_per_day, table.c.consecutive_valid).where(
        table.c.host_id == row.host_id, table.c.app_version_id == row.app_version_id
    )
    found = connection.execute(query).first()
    if found is None:
        return {}
    return {
        "host_id": row.host_id,
        "app_version_id": row.app_version_id,
        "jobs_per_day": found.max_jobs_per_day,
        "consecutive_valid": found.consecutive_valid,
        "owed": 1,
    }


def count_refusals(connection: Connection, workunit: int) -> int:
    """Return how many hosts have refused a workunit."""
    table = tables.results
    query = select(func.count()).where(
        table.c.workunit_id == workunit,
        table.c.verdict == ResultVerdict.NOT_FOR_THIS_HOST.value,
    )
    return int(connection.scalar(query) or 0)


def ask_later(connection: Connection, workunit: int, now: int) -> None:
    """Have BOINC ask again; after twice as long as the last time, if it has by now."""
    table = tables.workunits
    mine = table.c.id == workunit
    query = select(table.c.ask_at, table.c.asked, table.c.ask_put).where(mine)
    ask_at, asked, put = connection.execute(query).one()
    if ask_at <= now or put:
        wait = _FIRST_WAIT_S * 2 ** min(asked, _DOUBLINGS)
        later = {"ask_at": now + wait, "asked": asked + 1, "ask_put": 0}
        connection.execute(update(table).where(mine).values(later))


def hasten(connection: Connection, names: Collection[str]) -> None:
    """Have questions put, ends taken and outcomes delivered that wait for validators."""
    table = tables.workunits
    named = table.c.name.in_(list(names))
    asks = update(table).where(named, table.c.ask_at > 0)
    connection.execute(asks.values(ask_at=1))  # long ago
    made = (table.c.undelivered == 1) | (table.c.boinc_id != 0)
    connection.execute(update(table).where(named, made).values(retry_at=0))
