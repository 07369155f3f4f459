"""Which of many tasks have ended: one question to the database for everybody who waits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.core.types import TaskState
from stoilo.server.db import schema

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from stoilo.server.db.store import Store

MOST_TASKS: Final = 1024  # of one call
MOST_ASKED: Final = 500  # in one statement: databases bound their variables
FIRST_S: Final = 0.02  # between two questions at least, s
LEAST_S: Final = (
    0.25  # between questions that nothing calls for, s: `look` mostly comes
)
MOST_S: Final = 1.0
SHARE: Final = 0.05  # who has waited for long may wait so much of that longer
FINAL: Final = tuple(state.value for state in TaskState if state.final)


@dataclass(eq=False)
class _Waiter:
    """Tasks that one call waits for; `ended` gets those that are final."""

    tasks: frozenset[str]
    began: float
    ended: asyncio.Future[frozenset[str]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Ends:
    """Tells calls when tasks have become final. For one event loop."""

    def __init__(
        self, store: Store, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._clock = store, clock
        self._waiters: set[_Waiter] = set()
        self._asking: asyncio.Task[None] | None = None
        self._come = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def wait(self, tasks: Collection[str]) -> frozenset[str]:
        """Return those of `tasks` that are final: one at least, or none once closed."""
        if self._is_closed:
            return frozenset()
        self._loop = asyncio.get_running_loop()
        waiter = _Waiter(frozenset(tasks), self._clock())
        self._waiters.add(waiter)
        self._come.set()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            return await waiter.ended
        finally:
            self._waiters.discard(waiter)

    def look(self) -> None:
        """Ask soon: a task has ended. For any thread; what ends untold is found later."""
        if self._waiters and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._come.set)

    def close(self) -> None:
        """Let every call end: the server stops."""
        self._is_closed = True
        for waiter in self._waiters:
            if not waiter.ended.done():
                waiter.ended.set_result(frozenset())

    async def _ask(self) -> None:
        """Ask again and again while somebody waits; a failed question fails them all."""
        while self._waiters:
            self._come.clear()
            began = self._clock()
            tasks = frozenset[str]().union(*(one.tasks for one in self._waiters))
            try:
                ended = await asyncio.to_thread(self._find_final, sorted(tasks))
            except Exception as error:  # noqa: BLE001 - handed to every call
                self._give_up(error)
                return
            for waiter in [*self._waiters]:
                if (found := ended & waiter.tasks) and not waiter.ended.done():
                    waiter.ended.set_result(found)
                    self._waiters.discard(waiter)
            # Many tasks take long to ask for: a tenth of the time at most.
            await asyncio.sleep(max(FIRST_S, 9 * (self._clock() - began)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._come.wait(), self._pause_s())

    def _give_up(self, error: Exception) -> None:
        for waiter in self._waiters:
            if not waiter.ended.done():
                waiter.ended.set_exception(error)
        self._waiters.clear()

    def _pause_s(self) -> float:
        newest = max((one.began for one in self._waiters), default=self._clock())
        return min(MOST_S, max(LEAST_S, SHARE * (self._clock() - newest)))

    def _find_final(self, tasks: Sequence[str]) -> frozenset[str]:
        with self._store.read() as connection:
            table = schema.task
            return select_tasks(connection, tasks, table.c.state.in_(FINAL))


def select_tasks(
    connection: Connection, tasks: Sequence[str], rule: ColumnElement[bool]
) -> frozenset[str]:
    """Return the ids among `tasks` whose rows are as `rule` says."""
    table, found = schema.task, set[str]()
    for start in range(0, len(tasks), MOST_ASKED):
        some = tasks[start : start + MOST_ASKED]
        query = select(table.c.id).where(table.c.id.in_(some), rule)
        found.update(connection.scalars(query))
    return frozenset(found)
