"""Where a workunit is, as its owner is told; how much there is of all, as the operator is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import distinct, func, select

from stoilo.server.engines.embedded.accounts.preferences import holds, would_take
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    Validity,
    WorkunitState,
    load_view,
)
from stoilo.server.engines.interface import (
    Cost,
    EngineFigures,
    ResultOutcome,
    ResultProgress,
    ResultView,
)
from stoilo.server.engines.status import WITHIN_S, age_of, count_rows, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from stoilo.core.boinc.messages import OtherResult
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.interface import WorkunitStatus


def read_status(
    connection: Connection,  # of the engine's database
    name: str,  # of the workunit
    since: int,  # a host counts as attached when it called at that time, s, or later
    # what a host says of a result that it has not finished
    said: Callable[[str], OtherResult | None] = lambda _name: None,
) -> WorkunitStatus | None:
    """Return a workunit's status, None for names never created."""
    row = connection.execute(
        select(schema.workunits).where(schema.workunits.c.name == name)
    ).first()
    if row is None:
        return None
    views = tuple(
        _with_progress(one, said(one.name))
        if one.state is ResultProgress.IN_PROGRESS
        else one
        for one in _results(connection, row.id)
    )
    attached = _count_attached(connection, row, since)
    view = load_view(connection, row.id)
    return status_of(
        row.name,
        views,
        view.outcome,
        attached,
        view.in_force.min_quorum,
        host_class=view.host_class,
    )


def _results(connection: Connection, workunit_id: int) -> tuple[ResultView, ...]:
    table = schema.results
    mine = select(table).where(table.c.workunit_id == workunit_id)
    return tuple(
        ResultView(
            name=result.name,
            state=ResultProgress(result.state),
            outcome=_shown_outcome(result),
            code=result.code,
            sent_at=result.sent_at,
            received_at=result.received_at,
            cpu_s=result.cpu_s,
            host=result.host_id,
        )
        for result in connection.execute(mine.order_by(table.c.id))
    )


def _with_progress(view: ResultView, said: OtherResult | None) -> ResultView:
    if said is None:
        return view
    return replace(view, cpu_s=said.cpu_s, fraction_done=said.fraction_done)


def _count_attached(connection: Connection, workunit: AnyRow, since: int) -> int:
    hosts, users = schema.hosts, schema.users
    query = (
        select(func.count(distinct(hosts.c.user_id)))
        .join(users, users.c.id == hosts.c.user_id)
        .where(
            hosts.c.seen_at >= since,
            users.c.left_at == 0,
            holds(users.c.levels, workunit.app),
            would_take(workunit),
        )
    )
    return int(connection.scalar(query) or 0)


def _shown_outcome(result: AnyRow) -> ResultOutcome:
    """Return the outcome as the owner sees it: a false value counts as invalid."""
    outvoted = result.validity == Validity.INVALID
    return ResultOutcome.INVALID if outvoted else ResultOutcome(result.outcome)


def read_cost(connection: Connection, names: Sequence[str]) -> Cost:
    """Return what workunits cost together, as far as their rows are kept."""
    results, workunits = schema.results, schema.workunits
    sums = [func.sum(results.c.cpu_s), func.sum(results.c.granted)]
    joined = select(*sums).join(workunits, workunits.c.id == results.c.workunit_id)
    found = connection.execute(joined.where(workunits.c.name.in_(list(names)))).one()
    return Cost(*(one or 0.0 for one in found))


def read_figures(connection: Connection, now: int) -> EngineFigures:
    """Return the engine's figures at `now`, s, within one read transaction."""
    results, workunits = schema.results, schema.workunits
    by_state = select(results.c.state, results.c.outcome, func.count())
    unsent = (
        select(func.min(workunits.c.created_at))
        .join(results, results.c.workunit_id == workunits.c.id)
        .where(results.c.state == ResultProgress.UNSENT.value)
    )
    fresh = (
        select(func.count(), func.min(results.c.received_at))
        .where(results.c.state == ResultProgress.OVER.value)
        .where(results.c.outcome == ResultOutcome.SUCCESS.value)
        .where(results.c.validity == Validity.INIT.value)
    )
    waiting, oldest = connection.execute(fresh).one()
    grouped = by_state.group_by(results.c.state, results.c.outcome)
    hosts = schema.hosts
    running = workunits.c.state == WorkunitState.RUNNING.value

    return EngineFigures(
        workunits=count_rows(connection, workunits, running),
        results={
            (state, outcome): number
            for state, outcome, number in connection.execute(grouped)
        },
        unsent_age_s=age_of(now, connection.scalar(unsent)),
        to_validate=waiting,
        to_validate_age_s=age_of(now, oldest),
        outcomes_waiting=count_rows(
            connection, workunits, workunits.c.tell_at.is_not(None)
        ),
        accounts=count_rows(connection, schema.users),
        hosts={
            words: count_rows(connection, hosts, hosts.c.seen_at >= now - seconds)
            for words, seconds in WITHIN_S.items()
        },
        hosts_banned=count_rows(connection, hosts, hosts.c.ban.is_not(None)),
    )
