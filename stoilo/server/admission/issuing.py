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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert, select

from stoilo.core.errors import InternalError, StoiloError
from stoilo.server.db import schema
from stoilo.server.db.store import DatabaseAwayError

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
HOLD_MOST_S: Final = 900
"""How long an attempt that the engine refused is left alone, s."""

LOST_CODES: Final = frozenset({"STO-E001", "STO-E002"})
"""Refusals that no operator can mend: a senseless workunit, input of another digest."""

TAKEN_CODES: Final = frozenset({"STO-B097"})
"""Refusals of a name that stands for something else: the next number is free."""

_OWN_TROUBLE: Final = 3
"""So many single workunits refused by storage, one after the other: it is not they."""

_MESSAGE_CHARS: Final = 280
_HOLD = schema.hold


@dataclass(frozen=True, slots=True)
class Work:
    """One signed attempt, and the workunit that it is to become."""

    attempt: AttemptRow
    task: TaskRow
    spec: WorkunitSpec


@dataclass(slots=True)
class Issuer:
    """Makes the workunits of one batch; for one thread.

    Args:
        store: where holds are kept.
        engine: where workunits go.
        issued: notes that these attempts have their workunit.
        give_up: ends a task whose attempt can never be issued.
        renew: opens the next attempts of tasks, and cancels the workunits of these.
        clock: seconds since 1970.
        stopping: set once the server is to end.
    """

    store: Store
    engine: Engine
    issued: Callable[[Sequence[tuple[AttemptRow, TaskRow]]], None]
    give_up: Callable[[TaskRow, AttemptRow, StoiloError], None]
    renew: Callable[[list[tuple[AttemptRow, TaskRow]]], object]
    clock: Callable[[], int]
    stopping: threading.Event
    _in_a_row: int = field(default=0, init=False)
    _shared: bool = field(default=False, init=False)

    def issue(self, works: Sequence[Work]) -> None:
        """Issue what the engine takes; raises ``STO-E003`` and such when it takes nothing.

        Engines are idempotent by name: what a crash leaves half noted is made once.
        """
        self._in_a_row, self._shared = 0, len(works) > 1
        self._issue(works)

    def _issue(self, works: Sequence[Work]) -> None:
        if self.stopping.is_set():
            return
        try:
            self.engine.create_workunits([work.spec for work in works])
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
            self.issued([(work.attempt, work.task) for work in works])

    def _blame(self, work: Work, error: StoiloError) -> None:
        """End, renew, hold or spare the one attempt that the engine refused by itself."""
        if isinstance(error, InternalError):
            self._in_a_row += 1
            # Single ones refused in a row: the trouble is the engine's, and everybody waits.
            if self._in_a_row >= _OWN_TROUBLE or not self._shared:
                raise error
        if error.code in LOST_CODES:
            self.give_up(work.task, work.attempt, error)
        elif error.code in TAKEN_CODES:
            LOGGER.warning("%s is admitted anew: %s", work.attempt.workunit, error)
            self.renew([(work.attempt, work.task)])
        else:
            self._hold(work.attempt, error)

    def _hold(self, attempt: AttemptRow, error: StoiloError) -> None:
        now = self.clock()
        until = hold_until(now=now, admitted_at=attempt.admitted_at or now)
        LOGGER.warning("%s is held for %d s: %s", attempt.workunit, until - now, error)
        with self.store.write() as connection:
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
