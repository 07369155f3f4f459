"""Giving a workunit its one outcome: in one transaction, with the files it rests on.

Whoever comes first decides: BOINC's assimilator with a canonical result or an error, a
cancellation, a broken validator, too many refusals, the admission's end. What comes later
finds the outcome there and changes nothing. The results that it names are copies of ours
(`keeping`): BOINC may delete its own as soon as it has been answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from stoilo.server.engines.interface import (
    OutcomeKind,
    ReceivedResult,
    WorkunitOutcome,
)
from stoilo.server.engines.stock import schema
from stoilo.server.engines.stock.keeping import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.stock.database import Database

__all__ = ["Endings", "read_outcome", "set_outcome"]

_CODE_CHARS = 16
_MESSAGE_CHARS = 500


class Endings:
    """Ends workunits.

    Args:
        database: with our rows.
        kept: folder of the results that wait for a verdict or for delivery.

    Attributes:
        kept: the results in it.
    """

    def __init__(self, database: Database, kept: Path) -> None:
        self._database = database
        self.kept = Kept(kept)

    def end(
        self,
        row: int,
        kind: OutcomeKind,
        *,
        code: str = "",
        message: str = "",
        canonical: str = "",
        valid: Sequence[ReceivedResult] = (),
        cancel: bool = False,
    ) -> bool:
        """End a workunit unless it has ended; returns whether this did it.

        Args:
            row: ours.
            kind: how.
            code: of the deciding check or comparison.
            message: with it.
            canonical: name of the canonical result, one of `valid`.
            valid: results that the outcome names, as they were kept.
            cancel: BOINC is to be told that nobody needs it any more.

        Raises:
            InternalError: ``STO-E003``; nothing has changed.
        """
        with self._database.write() as connection:
            done = set_outcome(
                connection, row, kind, code=code, message=message, cancel=cancel
            )
            if done and valid:
                rows = [_kept_row(row, one, canonical) for one in valid]
                connection.execute(
                    delete(schema.kept_results).where(
                        schema.kept_results.c.workunit_id == row
                    )
                )
                connection.execute(insert(schema.kept_results), rows)
        return done

    def cancel(self, rows: Sequence[int]) -> list[int]:
        """Cancel workunits that have not ended, in one transaction; returns which.

        Raises:
            InternalError: ``STO-E003``; nothing has changed.
        """
        kind = OutcomeKind.CANCELLED
        with self._database.write() as connection:
            return [
                row for row in rows if set_outcome(connection, row, kind, cancel=True)
            ]

    def forget(self, row: int) -> None:
        """Remove what was kept for an outcome that has been delivered."""
        self.kept.forget(row)

    def path_of(self, row: int, result: str) -> Path:
        """Return where a kept result lies."""
        return self.kept.path_of(row, result)


def set_outcome(
    connection: Connection,
    row: int,
    kind: OutcomeKind,
    *,
    code: str = "",
    message: str = "",
    cancel: bool = False,
) -> bool:
    """Write a workunit's outcome unless it has one; returns whether this did it."""
    table = schema.workunits
    changed = connection.execute(
        update(table)
        .where(table.c.id == row, table.c.outcome.is_(None))
        .values(
            outcome=kind.value,
            code=code[:_CODE_CHARS],
            message=message[:_MESSAGE_CHARS],
            undelivered=1,
            retry_at=0,
            attempts=0,
            cancelling=int(cancel),
        )
    )
    return bool(changed.rowcount)


def _kept_row(row: int, one: ReceivedResult, canonical: str) -> dict[str, object]:
    return {
        "workunit_id": row,
        "name": one.name,
        "canonical": int(one.name == canonical),
        "size": one.size,
        "digest": one.digest,
        "host_id": one.host_id,
        "user_id": one.user_id,
        "received_at": one.received_at,
        "cpu_s": one.cpu_s,
        "flops": one.flops,
    }


def read_outcome(
    connection: Connection,
    row: Row,  # type: ignore[type-arg]  # a row of `workunits`
    endings: Endings,
) -> WorkunitOutcome:
    """Return the outcome of a workunit that has one, as it was first decided."""
    table = schema.kept_results
    found = connection.execute(
        select(table).where(table.c.workunit_id == row.id).order_by(table.c.name)
    ).all()
    results = [_result(one, row.name, endings) for one in found]
    canonical = [
        result for one, result in zip(found, results, strict=True) if one.canonical
    ]
    return WorkunitOutcome(
        workunit=row.name,
        kind=OutcomeKind(row.outcome),
        canonical=canonical[0] if canonical else None,
        valid=tuple(results),
        code=row.code,
        message=row.message,
    )


def _result(one: Row, workunit: str, endings: Endings) -> ReceivedResult:  # type: ignore[type-arg]  # a row of `kept_results`
    return ReceivedResult(
        name=one.name,
        workunit=workunit,
        path=endings.path_of(one.workunit_id, one.name),
        size=one.size,
        digest=one.digest,
        host_id=one.host_id,
        user_id=one.user_id,
        received_at=one.received_at,
        cpu_s=one.cpu_s,
        flops=one.flops,
    )
