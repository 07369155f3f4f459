"""Our rows of what was said about results, and of questions to be put again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, func, insert, select, update

from stoilo.server.engines.interface import ResultVerdict
from stoilo.server.engines.stock import boinctables, schema

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import BindParameter, Connection

    from stoilo.server.engines.interface import ResultCheck
    from stoilo.server.engines.stock.resultrows import OwnWorkunit, ResultRow

__all__ = [
    "Said",
    "ask_later",
    "count_refusals",
    "find_said",
    "forget_judged",
    "hasten",
    "message_of",
    "note_passed",
    "note_verdict",
]

_CODE_CHARS: Final = 16
_MESSAGE_CHARS: Final = 500
_FIRST_WAIT_S: Final = 60
_DOUBLINGS: Final = 6

# Asked at every call of BOINC's scripts, so put together once.
_RESULTS: Final[BindParameter[str]] = bindparam("results", expanding=True)
_PASSED: Final = select(schema.judged.c.result, schema.judged.c.digest).where(
    schema.judged.c.result.in_(_RESULTS)
)
_REFUSED: Final = select(
    schema.verdicts.c.result,
    schema.verdicts.c.verdict,
    schema.verdicts.c.code,
    schema.verdicts.c.message,
).where(schema.verdicts.c.result.in_(_RESULTS))


@dataclass(frozen=True, slots=True)
class Said:
    """What was said about a result.

    Attributes:
        verdict: only those that are final: valid, invalid, not for this host.
        code: with it.
        message: with it.
        digest: of a valid one: plain SHA-256 of the bytes that passed.
    """

    verdict: ResultVerdict
    code: str = ""
    message: str = ""
    digest: str = ""


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
        connection.execute(insert(schema.judged).values(**values, judged_at=now))


def note_verdict(
    connection: Connection,
    own: OwnWorkunit,
    row: ResultRow,
    check: ResultCheck,
    now: int,
) -> None:
    """Write down a "no" unless there is one; with a refusal, what it costs its host."""
    table = schema.verdicts
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
    """Return what BOINC will take from a host's record for a refusal."""
    table = boinctables.host_app_versions
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
    table = schema.verdicts
    query = select(func.count()).where(
        table.c.workunit_id == own.row,
        table.c.verdict == ResultVerdict.NOT_FOR_THIS_HOST.value,
    )
    return int(connection.scalar(query) or 0)


def ask_later(connection: Connection, own: OwnWorkunit, now: int) -> None:
    """Have BOINC ask again; after twice as long as the last time, if it has by now."""
    table, asked = schema.asks, schema.asked
    mine = table.c.workunit_id == own.row
    before = connection.execute(select(table).where(mine)).first()
    again = asked.c.workunit_id == own.row
    put = connection.scalar(select(asked.c.asked_at).where(again)) is not None
    if before is not None and not put and before.retry_at > now:
        return
    attempts = 0 if before is None else min(before.attempts + 1, _DOUBLINGS)
    connection.execute(delete(asked).where(again))
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
    own, table = schema.workunits, schema.asks
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
        schema.verdicts,
        schema.judged,
        schema.asks,
        schema.asked,
        schema.kept_results,
    ):
        connection.execute(delete(table).where(table.c.workunit_id.in_(rows)))
