"""Attempts that wait for an outcome which the engine will not tell any more.

Server and engine may be of different moments: a backup holds the server's tables but not
those of a stock project, and either may be restored without the other. Then an attempt can
stand as issued while the engine has told its outcome already, or never heard of it. Such an
attempt is closed and the next one opened, as when an admission has ended: nothing is lost,
the work is done again. The engine tells an outcome before it forgets that it is untold, so
between two that are of one moment nothing is ever found.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from stoilo.server.db import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import Engine

__all__ = ["Reconciler"]

LOGGER = logging.getLogger(__name__)

INTERVAL_S: Final = 600.0
"""Between two comparisons of all attempts that have a workunit, s."""

_AT_ONCE: Final = 512


class Reconciler:
    """Compares issued attempts with the engine: once at the start, then now and then.

    Args:
        store: attempts.
        engine: what has their workunits.
        retry: opens the next attempt of a task, unless it has moved on meanwhile.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        retry: Callable[[TaskRow, AttemptRow], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._engine = engine
        self._retry = retry
        self._clock = clock
        self._due_at = float("-inf")

    def reset(self) -> None:
        """Make the next step due."""
        self._due_at = float("-inf")

    def step(self) -> int:
        """Compare, when that is due; returns how many attempts were opened anew.

        Raises:
            StoiloError: a database is away; the step stays due.
        """
        if self._clock() < self._due_at:
            return 0
        moved, last = 0, ("", 0)
        while True:
            with self._store.read() as connection:
                page = rows.issued_after(connection, last, _AT_ONCE)
            if not page:
                break
            moved += self._reopen(page)
            last = (page[-1].task_id, page[-1].number)
        self._due_at = self._clock() + INTERVAL_S
        return moved

    def _reopen(self, page: list[rows.AttemptName]) -> int:
        names = {one.workunit: one for one in page}
        moved = 0
        for name in sorted(self._engine.settled(names)):
            with self._store.read() as connection:
                found = rows.find_issued(connection, names[name])
            if found is None:
                continue  # its outcome came between the two questions
            LOGGER.warning("%s: no outcome will come; admitted anew", name)
            self._retry(found[1], found[0])
            moved += 1
        return moved
