"""Where a workunit is, and how many there are: read from our rows and BOINC's."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import String, cast, distinct, func, select

from stoilo.server.engines.interface import (
    EngineFigures,
    OutcomeKind,
    ResultOutcome,
    ResultProgress,
    ResultVerdict,
    ResultView,
)
from stoilo.server.engines.status import WITHIN_S, age_of, count_rows, status_of
from stoilo.server.engines.stock.outcomes import (
    result_code,
    result_outcome,
    result_state,
)
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_tables import (
    BoincOutcome,
    ServerState,
    Validate,
    find_own,
    results_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sqlalchemy import ColumnElement, Connection, Select

    from stoilo.server.engines.interface import WorkunitStatus
    from stoilo.server.engines.stock.project.boinc_tables import OwnWorkunit, ResultRow
    from stoilo.server.engines.stock.project.database import Database


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
    rows = results_of(connection, workunit=own.boinc_id) if own.boinc_id else ()
    said = _verdicts(connection, own.row)
    results = tuple(_view(row, own, said) for row in rows)
    attached = _count_attached(connection, name, since)
    unmade = "waits to be made by BOINC's create_work"
    idle = "waits for BOINC's daemons" if own.boinc_id else unmade
    return status_of(
        own.name, results, own.outcome, attached, own.min_quorum, idle=idle
    )


def read_settled(connection: Connection, names: Collection[str]) -> frozenset[str]:
    """Return those of `names` that were never created, or whose outcome was taken."""
    table = tables.workunits
    query = select(table.c.name).where(
        table.c.name.in_(list(names)),
        table.c.outcome.is_(None) | (table.c.undelivered != 0),
    )
    return frozenset(names) - frozenset(connection.scalars(query))


def _verdicts(connection: Connection, row: int) -> dict[str, tuple[str, str]]:
    table = tables.results
    query = select(table.c.name, table.c.verdict, table.c.code)
    found = connection.execute(query.where(table.c.workunit_id == row))
    return {name: (verdict, code) for name, verdict, code in found}


def _view(
    row: ResultRow, own: OwnWorkunit, said: dict[str, tuple[str, str]]
) -> ResultView:
    """Return a result as its owner sees it.

    After an end without a result nobody waits for results still out; BOINC's row says
    "in progress" until the host has called and been told.
    """
    state = result_state(row.server_state)
    outcome = result_outcome(row.outcome, row.validate_state, row.exit_status)
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
        code=code or result_code(outcome),
        sent_at=row.sent_at,
        received_at=row.received_at,
        host=row.host_id,
    )


def _count_attached(connection: Connection, name: str, since: int) -> int:
    """Return how many users have a host seen lately and have not deselected the app.

    BOINC keeps the choice as a list of apps in the preferences; an empty list is all.
    """
    hosts, users, apps = boinc_tables.hosts, boinc_tables.users, boinc_tables.apps
    own = tables.workunits
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


# How long a count is told, s.
COUNTED_S: Final = 60

_WAITING: Final = (ServerState.INACTIVE, ServerState.UNSENT)


class Figures:
    """The figures of one project, at most `COUNTED_S` old; thread-safe."""

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now
        self._counting = threading.Lock()
        self._counted: EngineFigures | None = None
        self._at = 0

    def read(self) -> EngineFigures:
        """Return them; who comes while they are counted waits for that count."""
        with self._counting:
            now = self._now()
            if self._counted is None or now >= self._at + COUNTED_S:
                with self._database.read() as connection:
                    self._counted, self._at = read_figures(connection, now), now
            return self._counted


def read_figures(connection: Connection, now: int) -> EngineFigures:
    """Return the project's figures at `now`, s; BOINC bans no hosts for us."""
    own, results, hosts = tables.workunits, boinc_tables.results, boinc_tables.hosts
    unsent = _of_open(func.min(own.c.created_at)).where(
        results.c.server_state.in_(_WAITING)
    )
    fresh = _of_open(func.count(), func.min(results.c.received_time)).where(
        results.c.server_state == ServerState.OVER,
        results.c.outcome == BoincOutcome.SUCCESS,
        results.c.validate_state == Validate.INIT,
    )
    waiting, oldest = connection.execute(fresh).one()
    return EngineFigures(
        workunits=count_rows(connection, own, own.c.outcome.is_(None)),
        results=_results(connection),
        unsent_age_s=age_of(now, connection.scalar(unsent)),
        to_validate=waiting,
        to_validate_age_s=age_of(now, oldest),
        outcomes_waiting=count_rows(connection, own, own.c.undelivered == 1),
        accounts=count_rows(connection, boinc_tables.users),
        hosts={
            words: count_rows(connection, hosts, hosts.c.rpc_time >= now - seconds)
            for words, seconds in WITHIN_S.items()
        },
        hosts_banned=0,
    )


def _results(connection: Connection) -> dict[tuple[str, str], int]:
    table = boinc_tables.results
    state, outcome = table.c.server_state, table.c.outcome
    key = (state, outcome, table.c.validate_state)
    counts: Counter[tuple[str, str]] = Counter()
    query = _of_open(*key, func.count().label("n")).group_by(*key)
    for row in connection.execute(query):
        where = result_state(row.server_state)
        ended = ResultOutcome.NONE
        if where is ResultProgress.OVER:
            ended = result_outcome(row.outcome, row.validate_state, 0)
        counts[where.value, ended.value] += row.n
    return dict(counts)


def _of_open(*columns: ColumnElement[Any]) -> Select[Any]:
    own, results = tables.workunits, boinc_tables.results
    return (
        select(*columns)
        .select_from(own)
        .join(results, results.c.workunitid == own.c.boinc_id)
        .where(own.c.outcome.is_(None), own.c.boinc_id != 0)
    )
