"""`stoilo.connect`: the researcher's asynchronous door to a server."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from stoilo.client.address import Address, resolve_address
from stoilo.client.capture.arguments import StoredValue
from stoilo.client.capture.refusals import virtual_clocks
from stoilo.client.chunks import MapRecord
from stoilo.client.mapping import MapRun
from stoilo.client.options import TaskLimits, TaskOptions, make_options
from stoilo.client.results import ResultT
from stoilo.client.session import (
    PATIENCE_S,
    Journal,
    JournalEntry,
    Review,
    Session,
    at_the_caller,
    default_journal,
)
from stoilo.client.status import ListedTask, read_listed
from stoilo.client.task import StagedTask, SubmittedTask
from stoilo.client.wire import Wire
from stoilo.core.errors import DeniedError, StoiloError, UnreachableError, UsageError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import Redundancy, TaskState

if TYPE_CHECKING:
    from stoilo.client.checking import CheckedTask

logger = logging.getLogger("stoilo.client")

CONNECT_S = 10.0

TaskFunction = Callable[[dict[str, Any]], ResultT]
Where = str | os.PathLike[str] | Address | None


class Connection:
    """A server, ready for tasks. Make one with ``await stoilo.connect(...)``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def session(self) -> Session:
        """What this connection's tasks share, for code that brings its own source."""
        return self._session

    @property
    def target(self) -> str:
        """``host:port`` of the server."""
        return self._session.wire.address.target

    def create_task(
        self,
        func: TaskFunction[ResultT],
        kwargs: Mapping[str, Any] | None = None,
        init_valid_func: Callable[[Any], bool] | None = None,
        compare_valid_func: Callable[[Any, Any], bool] | None = None,
        redundancy_options: Redundancy | None = None,
        flavor: str | None = None,
        *,
        level: str | None = None,
        limits: TaskLimits | None = None,
        label: str = "",
        publish_source: bool = False,
        key: str | None = None,
    ) -> StagedTask[ResultT]:
        """Capture a task; returns at once and sends nothing.

        Args:
            func: called on volunteers' computers with one dict.
            kwargs: that dict: name → value.
            init_valid_func: checks one returned value; always true when missing.
            compare_valid_func: whether two values are equivalent; equality when missing.
            redundancy_options: see `stoilo.low_level.redundancy.CreateOptions`.
            flavor: dependency set; the smallest that holds the imports when missing.
            level: lowest level wanted; the lowest that admits when missing.
            limits: what one run may use; the level's defaults when missing.
            label: shown in lists, at most 128 characters.
            publish_source: let anybody read the source in the public log.
            key: 1 to 64 of ``A-Z a-z 0-9 . _ : -``: submitting the same task again under
                the same key, also from another process, gives the first one. A fresh one
                when missing.

        Raises:
            UsageError: ``STO-C…``: something cannot travel, by name, or options do not
                fit together.
        """
        options = make_options(
            redundancy_options, flavor, level, limits, label, publish_source
        )
        captured = self._session.captures.task(
            func, kwargs, init_valid_func, compare_valid_func
        )
        return StagedTask(self._session, captured, options, key)

    def restore_task(self, task_id: str) -> SubmittedTask[Any]:
        """Return a task submitted earlier, by this or any other process of its owner."""
        if not task_id.strip():
            raise UsageError(
                "STO-C042",
                "restore_task needs the task_id of a submitted task",
                hint="conn.recent_tasks() lists what was submitted from here",
            )
        return SubmittedTask(self._session, task_id.strip())

    def preview(
        self,
        func: TaskFunction[object],
        kwargs: Mapping[str, Any] | None = None,
        init_valid_func: Callable[[Any], bool] | None = None,
        compare_valid_func: Callable[[Any, Any], bool] | None = None,
    ) -> str:
        """Return the exact text that would be sent, validators below the task.

        Clocks that say something else to volunteers than here are named in a warning.
        """
        captured = self._session.captures.task(
            func, kwargs, init_valid_func, compare_valid_func
        )
        for clock in virtual_clocks(captured.task_module):
            logger.warning("on volunteers' computers %s: copies must agree", clock)
        if not captured.validator_module:
            return captured.task_module
        rule = f"\n\n# validators (never leave the server)\n{captured.validator_module}"
        return captured.task_module + rule

    def check(
        self,
        func: TaskFunction[object],
        kwargs: Mapping[str, Any] | None = None,
        init_valid_func: Callable[[Any], bool] | None = None,
        compare_valid_func: Callable[[Any, Any], bool] | None = None,
        *,
        level: str | None = None,
    ) -> CheckedTask:
        """Return what the gate says of such a task at home; sends nothing."""
        return self.create_task(
            func, kwargs, init_valid_func, compare_valid_func, level=level
        ).check()

    def map(
        self,
        func: TaskFunction[ResultT],
        items: Iterable[Mapping[str, Any]],
        init_valid_func: Callable[[Any], bool] | None = None,
        compare_valid_func: Callable[[Any, Any], bool] | None = None,
        redundancy_options: Redundancy | None = None,
        flavor: str | None = None,
        *,
        level: str | None = None,
        limits: TaskLimits | None = None,
        label: str = "",
        publish_source: bool = False,
        chunk_items: int | None = None,
        key: str | None = None,
    ) -> MapRun[ResultT]:
        """Run `func` once an item; many items share a task, sized by measured cost.

        Args:
            func: as for `create_task`.
            items: one dict a call.
            init_valid_func: as for `create_task`, for each item by itself.
            compare_valid_func: as for `create_task`, for each item by itself.
            redundancy_options: as for `create_task`.
            flavor: as for `create_task`.
            level: as for `create_task`.
            limits: as for `create_task`; they hold for a whole chunk.
            label: as for `create_task`.
            publish_source: as for `create_task`.
            chunk_items: items a task; None = start small and grow while tasks are short.
            key: a name of your own. The same map under the same key, also in another
                process on this machine, takes up what was sent and sends the rest.

        Returns:
            A `MapRun`: await it for the list of results in order, or iterate over it
            (``async for``) for results as they come.
        """
        options = make_options(
            redundancy_options, flavor, level, limits, label, publish_source
        )
        calls = [dict(item) for item in items]
        captured = (
            self._session.captures.calls(
                func, calls, init_valid_func, compare_valid_func
            )
            if calls
            else None
        )
        record = self._open_record(key) if key is not None else None
        if record is not None:
            record.begin(len(calls))
        return MapRun(self._session, captured, options, chunk_items, record)

    def restore_map(self, key: str) -> MapRun[Any]:
        """Return what was sent of a map with this key, whose function is not at hand.

        Items that never were sent are `SystemError`; ``map`` with the key sends them.

        Raises:
            UsageError: ``STO-C042`` when nothing was sent to this server under the key.
        """
        record = self._open_record(key)
        if not record.total:
            raise UsageError(
                "STO-C042", f"no map was sent from here under the key {key!r}"
            )
        return MapRun(self._session, None, TaskOptions(), None, record)

    def _open_record(self, key: str) -> MapRecord:
        return MapRecord.open(self._session.journal, self.target, key)

    @at_the_caller
    async def put(self, value: object) -> StoredValue:
        """Upload a large value once and return a handle that many tasks may name.

        The handle goes into ``kwargs`` in the value's place. Volunteers keep the bytes
        between tasks.

        Raises:
            UsageError: ``STO-D…`` when the value is not plain data.
        """
        stored, data = StoredValue.of(value)
        await self._session.store(data)
        return stored

    def recent_tasks(self, limit: int = 20) -> list[JournalEntry]:
        """Return tasks that this user of this machine sent to this server, newest first."""
        return self._session.journal.read(limit, self.target)

    @at_the_caller
    async def list_tasks(
        self,
        *,
        states: Iterable[TaskState | str] = (),
        label: str = "",
        limit: int = 100,
    ) -> list[ListedTask]:
        """Return this account's tasks at the server, newest first, from any machine.

        Args:
            states: only those in one of them; all when empty.
            label: only those with exactly this label, sought among the newest 10,000.
            limit: how many at most, up to 1,000.
        """
        request = pb.ListTasksRequest(
            states=[TaskState(one).value for one in states], label=label, limit=limit
        )
        session = self._session
        answer = await session.wire.call_patiently(
            "ListTasks", request, patience_s=session.patience_s
        )
        return list(map(read_listed, answer.tasks))

    async def close(self) -> None:
        """Close the connection; submitted tasks go on."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        """Return the connection."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it."""
        await self.close()

    def __repr__(self) -> str:
        """Return the address."""
        return f"<stoilo.Connection {self.target}>"


class Connecting:
    """What `connect` returns: await it, or use it in ``async with``."""

    def __init__(self, open_connection: Callable[[], Any]) -> None:
        self._open = open_connection
        self._connection: Connection | None = None

    def __await__(self) -> Generator[Any, None, Connection]:
        """Connect."""
        return self._open().__await__()  # type: ignore[no-any-return]  # a coroutine

    async def __aenter__(self) -> Connection:
        """Connect; the block's end closes."""
        self._connection = await self
        return self._connection

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        if self._connection is not None:
            await self._connection.close()


def connect(
    where: Where = None,
    *,
    timeout: float = CONNECT_S,
    review: Review | None = None,
    journal: Journal | None = None,
    patience: float = PATIENCE_S,
) -> Connecting:
    """Connect to a server: ``conn = await stoilo.connect(...)``.

    Args:
        where: path of a connection file, ``host:port`` (credentials from the file that
            ``$STOILO_CONNECTION`` names), or None for that file as it is.
        timeout: how long to wait for the first answer, s.
        review: called with a source's exact text before its first submission; sending
            goes on only when it returns True.
        journal: where submitted ids are noted; the user's own when missing.
        patience: how long submissions outlast a lost server, s.

    Raises:
        UsageError: ``STO-C045`` about the address.
        UnreachableError: ``STO-C050``.
        DeniedError: ``STO-R001`` or the server's own code.
    """

    @at_the_caller
    async def open_connection() -> Connection:
        address = where if isinstance(where, Address) else resolve_address(where)
        wire = Wire(address)
        try:
            await _greet(wire, timeout)
        except BaseException:
            await wire.close()
            raise
        kept = journal if journal is not None else default_journal()
        return Connection(Session(wire, kept, patience, review))

    return Connecting(open_connection)


async def _greet(wire: Wire, timeout_s: float) -> None:
    """Make sure that somebody answers who knows our token."""
    request = pb.PollTaskRequest(task_id="")

    async def attempt() -> None:
        try:
            await wire.call("PollTask", request, timeout_s=timeout_s)
        except (UnreachableError, DeniedError) as error:
            if isinstance(error, UnreachableError) or error.code in _BAD_TOKEN:
                raise
        except StoiloError:
            return  # any answer of the service will do: there is no task without id

    await wire.be_patient(attempt, patience_s=timeout_s)


_BAD_TOKEN = frozenset({"STO-R001", "STO-R002"})
