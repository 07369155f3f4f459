"""Giving a workunit its one outcome: in one transaction, with the files it rests on.

Whoever comes first decides: BOINC's assimilator with a canonical result or an error, a
cancellation, a broken validator, too many refusals, the admission's end. What comes later
finds the outcome there and changes nothing. Results are linked into a folder of ours
before the row says so, because BOINC may delete its own as soon as it has been answered.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from stoilo.core.errors import InternalError
from stoilo.server.engines.interface import (
    OutcomeKind,
    ReceivedResult,
    WorkunitOutcome,
)
from stoilo.server.engines.stock import schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.stock.database import Database

__all__ = ["Endings", "read_outcome", "set_outcome"]

_CODE_CHARS = 16
_MESSAGE_CHARS = 500


class Endings:
    """Ends workunits; `kept` is the folder of results that wait for delivery."""

    def __init__(self, database: Database, kept: Path) -> None:
        self._database = database
        self._kept = kept

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
            valid: results that the outcome names.
            cancel: BOINC is to be told that nobody needs it any more.

        Raises:
            InternalError: ``STO-E003``; nothing has changed.
        """
        try:
            kept = [self._keep(row, one) for one in valid]
        except OSError as error:
            raise InternalError(
                "STO-E003", f"a result could not be kept (errno {error.errno})"
            ) from error
        with self._database.write() as connection:
            done = set_outcome(
                connection, row, kind, code=code, message=message, cancel=cancel
            )
            if done and kept:
                rows = [_kept_row(row, one, canonical) for one in kept]
                connection.execute(
                    delete(schema.kept_results).where(
                        schema.kept_results.c.workunit_id == row
                    )
                )
                connection.execute(insert(schema.kept_results), rows)
        return done

    def forget(self, row: int) -> None:
        """Remove what was kept for an outcome that has been delivered."""
        shutil.rmtree(self._kept / str(row), ignore_errors=True)

    def path_of(self, row: int, result: str) -> Path:
        """Return where a kept result lies."""
        return self._kept / str(row) / result

    def _keep(self, row: int, result: ReceivedResult) -> ReceivedResult:
        """Link a result's file, or copy it from another disk, durably."""
        target = self.path_of(row, result.name)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not target.exists():
            draft = target.with_suffix(".part")
            draft.unlink(missing_ok=True)
            try:
                os.link(result.path, draft)
            except OSError:
                shutil.copyfile(result.path, draft)
            _sync(draft)
            draft.replace(target)
            _sync(target.parent)
        return result


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


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
