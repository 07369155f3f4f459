"""Which copies go to a host: those that it has lost, and new ones as far as it may."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, exists, func, select, update

from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.rules.hosttrust import (
    BY_OPERATOR,
    consecutive_valid,
    find_ban,
    homogeneous_class,
    is_banned,
    is_trusted,
    is_trusted_account,
)
from stoilo.server.engines.embedded.rules.records import Caller, CheckVerdict
from stoilo.server.engines.embedded.rules.replication import (
    commit_class,
    fits_class,
    raise_quorum,
)
from stoilo.server.engines.embedded.rules.transitioner import (
    deadline_of,
    may_issue,
    may_recheck,
)
from stoilo.server.engines.embedded.scheduling.bounds import fits_host
from stoilo.server.engines.embedded.scheduling.locality import local_first
from stoilo.server.engines.embedded.scheduling.wishes import allowed_apps, is_wanted
from stoilo.server.engines.embedded.views import load_view
from stoilo.server.engines.interface import CopyState, Homogeneity

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection, Row, Select

    from stoilo.executor.messages import SchedulerRequest, Wishes
    from stoilo.server.engines.embedded.people.accounts import User
    from stoilo.server.engines.embedded.rules.records import WorkunitView
    from stoilo.server.engines.embedded.scheduling.hosts import Host

__all__ = ["Pace", "fresh_copies", "lost_copies", "notices"]

CANDIDATES_PER_COPY = 8
BANNED_NOTICE = (
    "This computer gets no work: a result of it was checked again and was wrong. "
    "Ask the project's operator [STO-E041]."
)
BANNED_BY_OPERATOR = "The project's operators have banned this computer [STO-E065]."
MOST_HELD = 500
"""Copies of one host, whatever it says of its processors: a call names all of them, and
one that names more than `requests.RESULTS_PER_REQUEST` is refused."""

SECONDS_PER_COPY = 60.0  # what one copy is taken to last when work for N s is asked


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the project hands out work.

    Attributes:
        next_rpc_delay_s: hosts call again after at most that many s.
        copies_per_rpc: most copies in one reply.
        copies_per_cpu: most copies in progress on a host, per processor.
        busy_rpc_delay_s: the same for stock clients that have what they asked for: when
            something ends they call by themselves, so this is for aborts.
        quiet_rpc_delay_s: the same for stock clients that have had no work for long.
    """

    next_rpc_delay_s: float = 0.5
    copies_per_rpc: int = 16
    copies_per_cpu: int = 4
    busy_rpc_delay_s: float = 15.0
    quiet_rpc_delay_s: float = 60.0


def lost_copies(
    connection: Connection,
    account: User,
    host: Host,
    request: SchedulerRequest,
    pace: Pace,
) -> list[Row]:  # type: ignore[type-arg]  # rows of `_copy_query`
    """Return copies that the host should have and does not mention.

    What the account or the host has meanwhile ruled out is not sent again.
    """
    named = {result.name for result in request.results}
    named |= {other.name for other in request.other_results}
    rows = connection.execute(_held_query(), {"host": host.id}).all()
    lost = [row for row in rows if row.name not in named]
    if lost:
        wanted = _wanted(connection, lost, account, request.wishes)
        lost = [row for row in lost if row.workunit_id in wanted]
    return lost[: pace.copies_per_rpc]


def _wanted(
    connection: Connection,
    rows: list[Row],  # type: ignore[type-arg]  # rows of `_copy_query`
    account: User,
    wishes: Wishes,
) -> set[int]:
    """Return which workunits of these copies account and host allow now."""
    table = schema.workunits
    query = select(table.c.id).where(
        table.c.id.in_([row.workunit_id for row in rows]),
        table.c.app.in_(allowed_apps(account.apps, wishes)),
        is_wanted(wishes),
    )
    return set(connection.scalars(query))


def notices(connection: Connection, host: Host) -> tuple[str, ...]:
    """Return what a host's user is to be told about getting no work."""
    ban = find_ban(connection, host.id)
    if ban is None:
        return ()
    return (BANNED_BY_OPERATOR if ban == BY_OPERATOR else BANNED_NOTICE,)


def fresh_copies(
    connection: Connection,
    user: User,
    host: Host,
    request: SchedulerRequest,
    now: int,
    pace: Pace,
    draw: Callable[[], float],
) -> list[Row]:  # type: ignore[type-arg]  # rows of `_copy_query`
    """Give new copies to the host, as many as it asks for and may have.

    A trusted account's hosts get what is to be checked again first.
    """
    room = _room(connection, host, request, pace)
    if room <= 0 or is_banned(connection, host.id):
        return []
    caller = _caller(connection, user, host, request)
    given: list[int] = []
    seen: set[int] = set()
    most = room * CANDIDATES_PER_COPY
    for query in _candidates(user, caller, now, request.wishes):
        fitting = query.where(fits_host(request.host))
        for row in local_first(connection, request, fitting, most, now):
            if len(given) == room or row.workunit_id in seen:
                continue
            seen.add(row.workunit_id)
            view = load_view(connection, row.workunit_id)
            if may_issue(view, caller, now) or may_recheck(view, caller, now):
                deadline = deadline_of(view.redundancy, now)
                _issue(connection, row.id, user, host, now=now, deadline=deadline)
                _settle_spread(connection, row.id, view, caller, host, now, draw)
                given.append(row.id)
    return list(connection.execute(_given_query(), {"given": given}).all())


def _caller(
    connection: Connection, user: User, host: Host, request: SchedulerRequest
) -> Caller:
    """Return the host as the rules see it."""
    return Caller(
        user.id,
        host.key,
        homogeneous_class(request.host, Homogeneity.COARSE),
        homogeneous_class(request.host, Homogeneity.FINE),
        is_trusted_account(connection, user.id),
    )


def _settle_spread(
    connection: Connection,
    copy_id: int,
    view: WorkunitView,
    caller: Caller,
    host: Host,
    now: int,
    draw: Callable[[], float],
) -> None:
    """Note what a copy that has just been issued means for the others."""
    if view.outcome is not None or not (view.homogeneous or view.alone):
        return
    table, of = schema.copies, schema.workunits
    row = connection.execute(
        select(of.c.id, of.c.app)
        .join(table, table.c.workunit_id == of.c.id)
        .where(table.c.id == copy_id)
    ).one()
    if view.homogeneous:
        commit_class(connection, row.id, caller.class_for(view.homogeneous))
    if view.alone and not caller.trusted_account:
        record = consecutive_valid(connection, host.id, row.app)
        if not is_trusted(record, draw()):
            raise_quorum(connection, row.id, now)


def _room(
    connection: Connection, host: Host, request: SchedulerRequest, pace: Pace
) -> int:
    """Return how many copies the request may get."""
    wants_work = request.cpu_req_secs > 0 or request.cpu_req_instances > 0
    if request.dont_send_work or not wants_work:
        return 0
    held = connection.scalar(_count_query(), {"host": host.id}) or 0
    most = min(pace.copies_per_cpu * request.ncpus, MOST_HELD) - held
    wanted = max(request.cpu_req_instances, request.cpu_req_secs / SECONDS_PER_COPY)
    asked = math.ceil(min(wanted, 1e6))
    return max(0, min(asked, most, pace.copies_per_rpc))


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
    user: User, caller: Caller, now: int, wishes: Wishes
) -> list[Select[tuple[int, int]]]:
    """Return the queries for unsent copies that may go to this host, best first.

    The same rules as in `transitioner`, which has the last word.
    """
    copies, table = schema.copies, schema.workunits
    spread = schema.replications
    other = copies.alias("other")
    has_one = exists().where(
        other.c.workunit_id == copies.c.workunit_id,
        (other.c.user_id == caller.user_id) | (other.c.host_key == caller.host_key),
    )
    fitting = (
        select(copies.c.id, copies.c.workunit_id)
        .join(table, table.c.id == copies.c.workunit_id)
        .outerjoin(spread, spread.c.workunit_id == table.c.id)
        .where(
            copies.c.state == CopyState.UNSENT.value,
            table.c.app.in_(allowed_apps(user.apps, wishes)),
            is_wanted(wishes),
            table.c.not_after >= now + table.c.delay_bound_s,
            fits_class(caller),
            ~has_one,
        )
        .order_by(copies.c.priority.desc(), copies.c.id)
    )
    ordinary = fitting.where(table.c.outcome.is_(None) | _is_for_anybody())
    return (
        [fitting.where(_is_recheck()), ordinary]
        if caller.trusted_account
        else [ordinary]
    )


def _is_recheck() -> ColumnElement[bool]:
    """Return the condition that a copy belongs to a spot check that goes on."""
    table = schema.spot_checks
    return exists().where(
        table.c.copy_id == schema.copies.c.id,
        table.c.verdict.in_([CheckVerdict.PENDING.value, CheckVerdict.OPEN.value]),
    )


def _is_for_anybody() -> ColumnElement[bool]:
    """Return the condition that a copy is a second opinion that any host may give."""
    table = schema.spot_checks
    return exists().where(
        table.c.copy_id == schema.copies.c.id,
        table.c.verdict == CheckVerdict.OPEN.value,
    )


# Made once, as every call runs them: to put one together costs more than to run it.
@cache
def _held_query() -> Select:  # type: ignore[type-arg]  # columns of two tables
    """Return the query for what :host should have."""
    return (
        _copy_query()
        .where(
            schema.copies.c.host_id == bindparam("host"),
            schema.copies.c.state == CopyState.IN_PROGRESS.value,
            schema.workunits.c.outcome.is_(None) | _is_recheck(),
        )
        .order_by(schema.copies.c.id)
    )


@cache
def _given_query() -> Select:  # type: ignore[type-arg]  # columns of two tables
    """Return the query for the copies :given."""
    given = schema.copies.c.id.in_(bindparam("given", expanding=True))
    return _copy_query().where(given).order_by(schema.copies.c.id)


@cache
def _count_query() -> Select[int]:
    """Return the query for how many copies are in progress on :host."""
    return select(func.count()).where(
        schema.copies.c.host_id == bindparam("host"),
        schema.copies.c.state == CopyState.IN_PROGRESS.value,
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
