"""One scheduler RPC: who calls, what came back, what goes out.

Order of BOINC (reference/boinc.md §6): authenticate, find the host, acknowledge every
report, abort what nobody needs, send again what the host has lost, hand out new copies.
One RPC is one write transaction: a copy is on the host in the database before the reply
leaves, and a report is durable before its acknowledgement does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import exists, select, update

from stoilo.executor.messages import (
    FileInfo,
    ResultInfo,
    ResultState,
    SchedulerReply,
    UploadInfo,
    WorkunitInfo,
)
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.hosts import find_host
from stoilo.server.engines.embedded.inputs import file_refs
from stoilo.server.engines.embedded.transitioner import (
    can_receive,
    deadline_of,
    may_issue,
)
from stoilo.server.engines.embedded.views import copy_of, load_view
from stoilo.server.engines.embedded.wishes import (
    allowed_apps,
    is_wanted,
    remember_wishes,
)
from stoilo.server.engines.interface import CopyOutcome, CopyState

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Row, Select

    from stoilo.executor.messages import ReportedResult, SchedulerRequest, Wishes
    from stoilo.server.engines.embedded.accounts import Accounts, User
    from stoilo.server.engines.embedded.database import Database
    from stoilo.server.engines.embedded.hosts import Host

__all__ = ["Pace", "Scheduler"]

CANDIDATES_PER_COPY = 8
SECONDS_PER_COPY = 60.0  # what one copy is taken to last when work for N s is asked
BAD_KEY_DELAY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the project hands out work.

    Attributes:
        next_rpc_delay_s: hosts call again after at most that many s.
        copies_per_rpc: most copies in one reply.
        copies_per_cpu: most copies in progress on a host, per processor.
    """

    next_rpc_delay_s: float = 0.5
    copies_per_rpc: int = 16
    copies_per_cpu: int = 4


class Scheduler:
    """Answers scheduler requests; `on_report` is called after one changed something."""

    def __init__(
        self,
        database: Database,
        accounts: Accounts,
        *,
        pace: Pace,
        on_report: Callable[[], None],
    ) -> None:
        self._database = database
        self._accounts = accounts
        self._pace = pace
        self._on_report = on_report

    def handle(
        self, request: SchedulerRequest, base_url: str, now: int
    ) -> SchedulerReply:
        """Return the reply to a (parsed, still untrusted) request.

        Raises:
            InternalError: ``STO-E003`` when the database refuses; nothing is stored.
        """
        with self._database.write() as connection:
            user = self._accounts.authenticate(connection, request.authenticator)
            if user is None:
                return SchedulerReply(
                    messages=("Unknown account key. Attach again with a valid one.",),
                    request_delay=BAD_KEY_DELAY_S,
                    bad_key=True,
                )
            host = find_host(connection, user, request, now)
            if host is None:
                return SchedulerReply(
                    messages=("This account has too many hosts [STO-E017].",),
                    request_delay=BAD_KEY_DELAY_S,
                )
            remember_wishes(connection, host.id, request.wishes)
            for report in request.results:
                _take_report(connection, host, report, now)
            rows = self._lost(connection, host, request)
            rows += self._fresh(connection, user, host, request, now)
            reply = self._reply(connection, host, request, rows, base_url)
        if request.results:
            self._on_report()
        return reply

    def _lost(
        self, connection: Connection, host: Host, request: SchedulerRequest
    ) -> list[Row]:  # type: ignore[type-arg]  # rows of `_copy_query`
        """Return copies that the host should have and does not mention."""
        named = {result.name for result in request.results}
        named |= {other.name for other in request.other_results}
        rows = connection.execute(
            _copy_query()
            .where(
                schema.copies.c.host_id == host.id,
                schema.copies.c.state == CopyState.IN_PROGRESS.value,
                schema.workunits.c.outcome.is_(None),
            )
            .order_by(schema.copies.c.id)
        ).all()
        lost = [row for row in rows if row.name not in named]
        return lost[: self._pace.copies_per_rpc]

    def _fresh(
        self,
        connection: Connection,
        user: User,
        host: Host,
        request: SchedulerRequest,
        now: int,
    ) -> list[Row]:  # type: ignore[type-arg]  # rows of `_copy_query`
        """Give new copies to the host, as many as it asks for and may have."""
        room = self._room(connection, host, request)
        if room <= 0:
            return []
        given: list[int] = []
        seen: set[int] = set()
        query = _candidates(user, host, now, request.wishes).limit(
            room * CANDIDATES_PER_COPY
        )
        for row in connection.execute(query).all():
            if len(given) == room or row.workunit_id in seen:
                continue
            seen.add(row.workunit_id)
            view = load_view(connection, row.workunit_id)
            if may_issue(view, user.id, host.key, now):
                deadline = deadline_of(view.redundancy, now)
                _issue(connection, row.id, user, host, now=now, deadline=deadline)
                given.append(row.id)
        fresh = _copy_query().where(schema.copies.c.id.in_(given))
        return list(connection.execute(fresh.order_by(schema.copies.c.id)).all())

    def _room(
        self, connection: Connection, host: Host, request: SchedulerRequest
    ) -> int:
        """Return how many copies the request may get."""
        wants_work = request.cpu_req_secs > 0 or request.cpu_req_instances > 0
        if request.dont_send_work or not wants_work:
            return 0
        held = len(
            connection.scalars(
                select(schema.copies.c.id).where(
                    schema.copies.c.host_id == host.id,
                    schema.copies.c.state == CopyState.IN_PROGRESS.value,
                )
            ).all()
        )
        most = self._pace.copies_per_cpu * request.ncpus - held
        wanted = max(request.cpu_req_instances, request.cpu_req_secs / SECONDS_PER_COPY)
        asked = math.ceil(min(wanted, 1e6))
        return max(0, min(asked, most, self._pace.copies_per_rpc))

    def _reply(
        self,
        connection: Connection,
        host: Host,
        request: SchedulerRequest,
        rows: list[Row],  # type: ignore[type-arg]  # rows of `_copy_query`
        base_url: str,
    ) -> SchedulerReply:
        """Return the reply with everything that the copies in `rows` need."""
        files: dict[str, FileInfo] = {}
        workunits: dict[int, WorkunitInfo] = {}
        for row in rows:
            if row.workunit_id not in workunits:
                refs = file_refs(connection, row.workunit_id, base_url, files)
                workunits[row.workunit_id] = WorkunitInfo(
                    row.workunit, row.app, row.fpops_est, row.fpops_bound, refs
                )
        return SchedulerReply(
            host_id=host.id if host.new else 0,
            acks=tuple(dict.fromkeys(result.name for result in request.results)),
            aborts=_aborts(connection, host, request),
            files=tuple(files.values()),
            uploads=tuple(
                UploadInfo(
                    row.upload_name,
                    f"{base_url}upload/{row.upload_token}",
                    row.result_max_bytes,
                )
                for row in rows
            ),
            workunits=tuple(workunits.values()),
            results=tuple(
                ResultInfo(row.name, row.workunit, row.deadline, row.upload_name)
                for row in rows
            ),
            next_rpc_delay=self._pace.next_rpc_delay_s,
        )


def _take_report(
    connection: Connection, host: Host, report: ReportedResult, now: int
) -> None:
    """Note a finished copy, if it is this host's and still counts; else ignore it."""
    table = schema.copies
    row = connection.execute(
        select(table).where(table.c.name == report.name, table.c.host_id == host.id)
    ).first()
    if row is None:
        return
    if not can_receive(load_view(connection, row.workunit_id), copy_of(row)):
        return
    success = report.state == ResultState.UPLOADED and report.exit_status == 0
    if success and row.upload_digest is not None:
        outcome, code = CopyOutcome.SUCCESS, ""
    else:
        outcome = CopyOutcome.CLIENT_ERROR
        code = "STO-E020" if success else "STO-E021"
        if row.state == CopyState.OVER.value:
            return  # a late failure is counted as no reply already
    connection.execute(
        update(table)
        .where(table.c.id == row.id)
        .values(
            state=CopyState.OVER.value,
            outcome=outcome.value,
            received_at=now,
            code=code,
        )
    )
    connection.execute(
        update(schema.workunits)
        .where(schema.workunits.c.id == row.workunit_id)
        .values(transition_at=now)
    )


def _aborts(
    connection: Connection, host: Host, request: SchedulerRequest
) -> tuple[str, ...]:
    """Return which unfinished copies the host need not finish."""
    names = [other.name for other in request.other_results]
    if not names:
        return ()
    table = schema.copies
    rows = connection.execute(
        select(table).where(table.c.name.in_(names), table.c.host_id == host.id)
    ).all()
    wanted = {
        row.name
        for row in rows
        if can_receive(load_view(connection, row.workunit_id), copy_of(row))
    }
    return tuple(name for name in names if name not in wanted)


def _issue(
    connection: Connection,
    copy_id: int,
    user: User,
    host: Host,
    *,
    now: int,
    deadline: int,
) -> None:
    """Write that a copy is on the host."""
    connection.execute(
        update(schema.copies)
        .where(schema.copies.c.id == copy_id)
        .values(
            state=CopyState.IN_PROGRESS.value,
            user_id=user.id,
            host_id=host.id,
            host_key=host.key,
            sent_at=now,
            deadline=deadline,
        )
    )
    row = schema.copies.c.workunit_id
    workunit = select(row).where(schema.copies.c.id == copy_id).scalar_subquery()
    table = schema.workunits
    connection.execute(
        update(table)
        .where(table.c.id == workunit, table.c.transition_at > deadline + 1)
        .values(transition_at=deadline + 1)
    )


def _candidates(
    user: User, host: Host, now: int, wishes: Wishes
) -> Select[tuple[int, int]]:
    """Return the query for unsent copies that may go to this host, best first.

    The same rules as `transitioner.may_issue`, which has the last word.
    """
    copies, table = schema.copies, schema.workunits
    other = copies.alias("other")
    has_one = exists().where(
        other.c.workunit_id == copies.c.workunit_id,
        (other.c.user_id == user.id) | (other.c.host_key == host.key),
    )
    return (
        select(copies.c.id, copies.c.workunit_id)
        .join(table, table.c.id == copies.c.workunit_id)
        .where(
            copies.c.state == CopyState.UNSENT.value,
            table.c.outcome.is_(None),
            table.c.app.in_(allowed_apps(user.apps, wishes)),
            is_wanted(wishes),
            table.c.not_after >= now + table.c.delay_bound_s,
            ~has_one,
        )
        .order_by(copies.c.priority.desc(), copies.c.id)
    )


def _copy_query() -> Select:  # type: ignore[type-arg]  # columns of two tables
    """Return the query for copies with what a reply says about their workunit."""
    table = schema.workunits
    return select(
        schema.copies,
        table.c.name.label("workunit"),
        table.c.app,
        table.c.fpops_est,
        table.c.fpops_bound,
        table.c.result_max_bytes,
    ).join(table, table.c.id == schema.copies.c.workunit_id)
