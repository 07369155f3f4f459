"""Where a workunit is, as its owner is told; how much there is of all, as the operator is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import distinct, func, select

from stoilo.server.engines.embedded.accounts.preferences import holds, would_take
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    Validity,
    WorkunitState,
    load_view,
)
from stoilo.server.engines.interface import (
    EngineFigures,
    OutcomeKind,
    ResultOutcome,
    ResultProgress,
    ResultView,
    WorkunitStatus,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

    from stoilo.server.engines.embedded.db.records import WorkunitView
    from stoilo.server.engines.embedded.db.schema import AnyRow


def read_status(
    connection: Connection,  # of the engine's database
    name: str,  # of the workunit
    since: int,  # a host counts as attached when it called at that time, s, or later
) -> WorkunitStatus | None:
    """Return a workunit's status, None for names never created."""
    row = connection.execute(
        select(schema.workunits).where(schema.workunits.c.name == name)
    ).first()
    if row is None:
        return None
    views = _results(connection, row.id)
    outcome = None if row.outcome is None else OutcomeKind(row.outcome)
    attached = _count_attached(connection, row, since)
    return WorkunitStatus(
        name=row.name,
        results=views,
        outcome=outcome,
        users_needed=sum(view.state is ResultProgress.UNSENT for view in views),
        users_attached=attached,
        explanation=_explain(load_view(connection, row.id), views, attached),
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
        )
        for result in connection.execute(mine.order_by(table.c.id))
    )


def _count_attached(connection: Connection, workunit: AnyRow, since: int) -> int:
    hosts, users = schema.hosts, schema.users
    query = (
        select(func.count(distinct(hosts.c.user_id)))
        .join(users, users.c.id == hosts.c.user_id)
        .where(
            hosts.c.seen_at >= since,
            holds(users.c.levels, workunit.app),
            would_take(workunit),
        )
    )
    return int(connection.scalar(query) or 0)


def _shown_outcome(result: AnyRow) -> ResultOutcome:
    """Return the outcome as the owner sees it: a false value counts as invalid."""
    outvoted = result.validity == Validity.INVALID
    return ResultOutcome.INVALID if outvoted else ResultOutcome(result.outcome)


def _explain(view: WorkunitView, results: tuple[ResultView, ...], attached: int) -> str:
    if view.outcome is not None:
        return f"ended: {view.outcome.value.replace('_', ' ')}"
    quorum = view.in_force.min_quorum
    alike = f" of class {view.host_class}" if view.host_class else ""
    unsent = sum(result.state is ResultProgress.UNSENT for result in results)
    working = sum(result.state is ResultProgress.IN_PROGRESS for result in results)
    done = sum(result.outcome is ResultOutcome.SUCCESS for result in results)
    if unsent and attached < quorum:
        return f"needs {quorum} distinct users, {attached} attached"
    if unsent:
        waiting = f"{unsent} results wait for a host{alike}"
        return f"{waiting}, {working} are on hosts, {done} are in"
    if working:
        return f"{working} are on hosts, {done} are in"
    return f"{done} results are being validated"


WITHIN_S: Final = {"10m": 600, "1d": 86_400}


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

    def count(table: Table, *which: ColumnElement[bool]) -> int:
        query = select(func.count()).select_from(table).where(*which)
        return int(connection.scalar(query) or 0)

    return EngineFigures(
        workunits=count(workunits, running),
        results={
            (state, outcome): number
            for state, outcome, number in connection.execute(grouped)
        },
        unsent_age_s=_age(now, connection.scalar(unsent)),
        to_validate=waiting,
        to_validate_age_s=_age(now, oldest),
        outcomes_waiting=count(workunits, workunits.c.tell_at.is_not(None)),
        accounts=count(schema.users),
        hosts={
            words: count(hosts, hosts.c.seen_at >= now - seconds)
            for words, seconds in WITHIN_S.items()
        },
        hosts_banned=count(hosts, hosts.c.ban.is_not(None)),
    )


def _age(now: int, since: int | None) -> int:
    return 0 if since is None else max(0, now - since)
