"""Handing signed attempts to the engine, so that one it refuses keeps no other back.

The engine takes a batch whole or not at all. A batch that it refuses is halved until the
culprits stand alone: those whose input can never be right end their task; those whose name
the engine has under another admission are admitted anew; the others are held, that is left
alone for a while (an app that is not installed yet, a file that cannot be read). What
refuses everybody (no disk, no database) is the server's own trouble: it is raised after a
few tries, and holds few.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert, select

from stoilo.core import tracing
from stoilo.core.errors import InternalError, StoiloError
from stoilo.core.types import TaskState
from stoilo.server.db import rows, schema
from stoilo.server.db.records import MAX_ATTEMPTS, AttemptState, Outcome
from stoilo.server.db.store import DatabaseAwayError
from stoilo.server.log.outbox import note_events, workunit_event
from stoilo.server.log.public_records import finish_task

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import Engine
    from stoilo.server.engines.workunits import WorkunitSpec


LOGGER = logging.getLogger(__name__)

HOLD_LEAST_S: Final = 15
HOLD_MOST_S: Final = 900  # how long an attempt that the engine refused is left alone, s
LOST_CODES: Final = frozenset({"STO-E001", "STO-E002"})
"""Refusals that no operator can mend: a senseless workunit, input of another digest."""

TAKEN_CODES: Final = frozenset({"STO-B097"})
"""Refusals of a name that stands for something else: the next number is free."""

_OWN_TROUBLE: Final = 3
"""So many single workunits refused by storage, one after the other: it is not they."""

_ADMITTED = frozenset({AttemptState.SEALED, AttemptState.LOGGED, AttemptState.SIGNED})
"""States of an attempt whose leaf may be in the log and whose workunit is not made."""

_MESSAGE_CHARS: Final = 280
_HOLD = schema.hold


@dataclass(frozen=True, slots=True)
class Work:
    """One signed attempt, and the workunit that it is to become."""

    attempt: AttemptRow
    task: TaskRow
    spec: WorkunitSpec


class Attempts:
    """What becomes of attempts: issued, closed, admitted anew, given up."""

    def __init__(
        self,
        store: Store,  # tasks and attempts
        engine: Engine,  # has their workunits
        clock: Callable[[], int],  # seconds since 1970
        wake: Callable[[], None],  # says that rows have changed
        # is told the names of workunits that nobody wants any more
        taken_back: Callable[[str], None],
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._wake = wake
        self._taken_back = taken_back

    def mark_issued(self, fresh: Sequence[tuple[AttemptRow, TaskRow]]) -> None:
        """Note that these attempts have their workunit."""
        with self._store.write() as connection:
            attempts, now = [attempt for attempt, _ in fresh], self._clock()
            rows.save_attempts(connection, attempts, AttemptState.ISSUED)
            let_go(connection, attempts)
            note_events(
                connection,
                [
                    workunit_event(one.task_id, one.number, now, issued=True)
                    for one in attempts
                ],
            )
            names = [task.task_id for _, task in fresh]
            rows.mark_tasks(connection, names, TaskState.ADMITTING, TaskState.RUNNING)

    def retry(self, task: TaskRow, attempt: AttemptRow) -> None:
        """Open the next attempt of `task`, or expire it after `MAX_ATTEMPTS`."""
        now = self._clock()
        with self._store.write() as connection:
            current = rows.find_task(connection, task.task_id)
            if (
                current is None
                or current.state.final
                or current.attempt != attempt.number
            ):
                return
            # The caller's copy may be older than the row; closing explains what the row has.
            newest = rows.find_attempt(connection, task.task_id, attempt.number)
            self._close(connection, [newest or attempt])
            # A task that no volunteer finishes must not fill the log without end.
            if attempt.number >= MAX_ATTEMPTS:
                expired = Outcome(
                    TaskState.EXPIRED,
                    attempt.number,
                    code="STO-R060",
                    error_text="no volunteer finished it while it was admitted",
                )
                finish_task(connection, current, expired, now)
                return
            if current.state is TaskState.RUNNING:
                rows.move_task(connection, current, TaskState.ADMITTING, now)
            rows.add_attempt(connection, current, now)
        self._wake()

    def give_up(self, task: TaskRow, attempt: AttemptRow, error: StoiloError) -> None:
        """End a task whose attempt can never be admitted."""
        outcome = Outcome(
            TaskState.SYSTEM_ERROR,
            attempt.number,
            error_text=error.message,
            code=error.code,
        )
        with self._store.write() as connection:
            current = rows.find_task(connection, task.task_id)
            if current is not None:
                finish_task(connection, current, outcome, self._clock())

    def renew(self, lost: Sequence[tuple[AttemptRow, TaskRow]]) -> int:
        """Take back what a withdrawn reviewer signed, or volunteers no longer accept.

        So too what the engine has under a name that an older state of ours uses again.

        Its next attempt parks, is admitted under another epoch or checkpoint, or is
        refused by the signer.
        In the thread that issues, so that no workunit of it is being made meanwhile.
        """
        for attempt, task in lost:
            self.retry(
                task, attempt
            )  # first: the engine's outcome is of no attempt now
        self._take_back([attempt for attempt, _ in lost])
        return len(lost)

    def sweep(self) -> int:
        """Close the attempts of tasks that became final in another way."""
        with self._store.read() as connection:
            orphans = rows.orphaned_attempts(connection)
        if orphans:
            self._take_back(orphans)
            with self._store.write() as connection:
                self._close(connection, orphans)
        return len(orphans)

    def _take_back(self, attempts: Sequence[AttemptRow]) -> None:
        """End attempts' workunits, and what their validators still do for them."""
        workunits = [attempt.workunit for attempt in attempts]
        self._engine.cancel(*workunits)
        for workunit in workunits:
            self._taken_back(workunit)

    def _close(self, connection: Connection, attempts: Sequence[AttemptRow]) -> None:
        """Close attempts; those whose admission may be in the log are explained there."""
        rows.save_attempts(connection, attempts, AttemptState.CLOSED)
        let_go(connection, attempts)
        now = self._clock()
        note_events(
            connection,
            [
                workunit_event(attempt.task_id, attempt.number, now, issued=False)
                for attempt in attempts
                if attempt.state in _ADMITTED
            ],
        )


class Issuer:
    """Makes the workunits of one batch; for one thread."""

    def __init__(
        self,
        store: Store,  # where holds are kept
        engine: Engine,  # where workunits go
        attempts: Attempts,  # notes what becomes of them
        clock: Callable[[], int],  # seconds since 1970
        stopping: threading.Event,  # set once the server is to end
    ) -> None:
        self._store = store
        self._engine = engine
        self._attempts = attempts
        self._clock = clock
        self._stopping = stopping
        self._in_a_row = 0
        self._shared = False

    def issue(self, works: Sequence[Work]) -> None:
        """Issue what the engine takes; raises ``STO-R030`` and such when it takes nothing.

        Engines are idempotent by name: what a crash leaves half noted is made once.
        """
        self._in_a_row, self._shared = 0, len(works) > 1
        self._issue(works)

    def _issue(self, works: Sequence[Work]) -> None:
        if self._stopping.is_set():
            return
        began = time.time_ns()
        try:
            self._engine.create_workunits([work.spec for work in works])
        except DatabaseAwayError:
            raise  # it is nobody's fault, and halves would fare no better
        except StoiloError as error:
            if len(works) == 1:
                self._blame(works[0], error)
                return
            # Halving finds the one that the engine refuses in log(n) calls, whoever it is.
            middle = len(works) // 2
            self._issue(works[:middle])
            self._issue(works[middle:])
        else:
            self._in_a_row = 0
            self._attempts.mark_issued([(work.attempt, work.task) for work in works])
            for work in works:
                number = work.attempt.number
                tracing.record("stoilo.issue", work.task.task_id, began, attempt=number)

    def _blame(self, work: Work, error: StoiloError) -> None:
        """End, renew, hold or spare the one attempt that the engine refused by itself."""
        if isinstance(error, InternalError):
            self._in_a_row += 1
            # Single ones refused in a row: the trouble is the engine's, and everybody waits.
            if self._in_a_row >= _OWN_TROUBLE or not self._shared:
                raise error
        if error.code in LOST_CODES:
            self._attempts.give_up(work.task, work.attempt, error)
        elif error.code in TAKEN_CODES:
            LOGGER.warning("%s is admitted anew: %s", work.attempt.workunit, error)
            self._attempts.renew([(work.attempt, work.task)])
        else:
            self._hold(work.attempt, error)

    def _hold(self, attempt: AttemptRow, error: StoiloError) -> None:
        now = self._clock()
        until = hold_until(now=now, admitted_at=attempt.admitted_at or now)
        LOGGER.warning("%s is held for %d s: %s", attempt.workunit, until - now, error)
        with self._store.write() as connection:
            # One hold an attempt, the newest.
            let_go(connection, [attempt])
            connection.execute(
                insert(_HOLD).values(
                    task_id=attempt.task_id,
                    number=attempt.number,
                    until=until,
                    reason=f"{error.message[:_MESSAGE_CHARS]} [{error.code}]",
                )
            )


def hold_until(*, now: int, admitted_at: int) -> int:
    """Return when to try again, s: after as long as it has waited, within bounds."""
    return now + min(max(now - admitted_at, HOLD_LEAST_S), HOLD_MOST_S)


def find_hold(connection: Connection, task_id: str, number: int) -> str:
    """Return why an attempt was refused last, with the code; empty: it was not."""
    query = select(_HOLD.c.reason).where(
        _HOLD.c.task_id == task_id, _HOLD.c.number == number
    )
    return str(connection.scalar(query) or "")


def let_go(connection: Connection, attempts: Sequence[AttemptRow]) -> None:
    """Forget that these attempts were refused."""
    held = connection.scalar(select(_HOLD.c.number).limit(1))
    if held is None:  # as nearly always: a batch then costs one look
        return
    for attempt in attempts:
        connection.execute(
            delete(_HOLD).where(
                _HOLD.c.task_id == attempt.task_id, _HOLD.c.number == attempt.number
            )
        )
