"""Where a workunit is, from our row and BOINC's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import String, cast, distinct, func, select

from stoilo.server.engines.interface import (
    OutcomeKind,
    ResultOutcome,
    ResultProgress,
    ResultVerdict,
    ResultView,
    WorkunitStatus,
)
from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.outcomes import copy_code, copy_outcome, copy_state
from stoilo.server.engines.stock.resultrows import find_own, results_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from stoilo.server.engines.stock.resultrows import OwnWorkunit, ResultRow

__all__ = ["read_settled", "read_status"]


def read_status(connection: Connection, name: str, since: int) -> WorkunitStatus | None:
    """Return a workunit's status, None for names never created.

    Args:
        connection: of the project's database.
        name: of the workunit.
        since: a host counts as attached when it called at that time, s, or later.
    """
    own = find_own(connection, name=name)
    if own is None:
        return None
    results = results_of(connection, workunit=own.boinc_id) if own.boinc_id else ()
    said = _verdicts(connection, own.row)
    copies = tuple(_copy(row, own, said) for row in results)
    attached = _count_attached(connection, name, since)
    unsent = sum(copy.state is ResultProgress.UNSENT for copy in copies)
    return WorkunitStatus(
        name=own.name,
        results=copies,
        outcome=own.outcome,
        users_needed=unsent,
        users_attached=attached,
        explanation=_explain(own, copies, attached),
    )


def read_settled(connection: Connection, names: Collection[str]) -> frozenset[str]:
    """Return those of `names` that were never created, or whose outcome was taken."""
    table = schema.workunits
    query = select(table.c.name).where(
        table.c.name.in_(list(names)),
        table.c.outcome.is_(None) | (table.c.undelivered != 0),
    )
    return frozenset(names) - frozenset(connection.scalars(query))


def _verdicts(connection: Connection, row: int) -> dict[str, tuple[str, str]]:
    """Return verdict and code of results that were not plainly valid."""
    table = schema.verdicts
    found = connection.execute(
        select(table.c.result, table.c.verdict, table.c.code).where(
            table.c.workunit_id == row
        )
    )
    return {one.result: (one.verdict, one.code) for one in found}


def _copy(
    row: ResultRow, own: OwnWorkunit, said: dict[str, tuple[str, str]]
) -> ResultView:
    """Return a copy as its owner sees it.

    After an end without a result nobody waits for copies still out; BOINC's row says
    "in progress" until the host has called and been told.
    """
    state = copy_state(row.server_state)
    outcome = copy_outcome(row.outcome, row.validate_state, row.exit_status)
    verdict, code = said.get(row.name, ("", ""))
    if verdict == ResultVerdict.NOT_FOR_THIS_HOST:
        outcome = ResultOutcome.REFUSED
    dropped = own.outcome not in {None, OutcomeKind.CANONICAL}
    if dropped and state is not ResultProgress.OVER:
        state, outcome = ResultProgress.OVER, ResultOutcome.NOT_NEEDED
    return ResultView(
        name=row.name,
        state=state,
        outcome=outcome if state is ResultProgress.OVER else ResultOutcome.NONE,
        code=code or copy_code(outcome),
        sent_at=row.sent_at,
        received_at=row.received_at,
    )


def _count_attached(connection: Connection, name: str, since: int) -> int:
    """Return how many users have a host seen lately and have not deselected the app.

    BOINC keeps the choice as a list of apps in the preferences; an empty list is all.
    """
    hosts, users, apps = boinctables.hosts, boinctables.users, boinctables.apps
    own = schema.workunits
    app = connection.scalar(
        select(apps.c.id).where(
            apps.c.name == select(own.c.app).where(own.c.name == name).scalar_subquery()
        )
    )
    chosen = func.coalesce(cast(users.c.project_prefs, String), "")
    count = connection.scalar(
        select(func.count(distinct(hosts.c.userid)))
        .join(users, users.c.id == hosts.c.userid)
        .where(
            hosts.c.rpc_time >= since,
            chosen.not_like("%<app_id>%")
            | chosen.like(f"%<app_id>{app or 0}</app_id>%"),
        )
    )
    return int(count or 0)


def _explain(own: OwnWorkunit, copies: tuple[ResultView, ...], attached: int) -> str:
    """Return one sentence about what a workunit waits for."""
    if own.outcome is not None:
        return f"ended: {own.outcome.value.replace('_', ' ')}"
    if not own.boinc_id:
        return "waits to be made by BOINC's create_work"
    unsent = sum(copy.state is ResultProgress.UNSENT for copy in copies)
    working = sum(copy.state is ResultProgress.IN_PROGRESS for copy in copies)
    done = sum(copy.outcome is ResultOutcome.SUCCESS for copy in copies)
    if unsent and attached < own.min_quorum:
        return f"needs {own.min_quorum} distinct users, {attached} attached"
    if unsent:
        return f"{unsent} copies wait for a host, {working} are on hosts, {done} are in"
    if working:
        return f"{working} copies are on hosts, {done} are in"
    return (
        f"{done} results are being validated" if done else "waits for BOINC's daemons"
    )
