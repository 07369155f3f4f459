"""Workunits and results in the database: every durable step is one transaction.

What to do is decided by `transitioner`; this module reads its views, writes its actions
and keeps the outbox through which an outcome reaches the server exactly once: outcome
and outbox row are one transaction, and the row goes only after the server has taken it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, case, select, true, update

from stoilo.server.db.bulk import select_in
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    Answers,
    Check,
    Close,
    Compare,
    Judge,
    Judgement,
    Question,
    Validity,
    WorkunitState,
    WorkunitView,
    load_view,
    load_views,
)
from stoilo.server.engines.embedded.files.app_versions import kept_digests
from stoilo.server.engines.embedded.workunits.creation import insert_workunits
from stoilo.server.engines.embedded.workunits.offers import Offers
from stoilo.server.engines.embedded.workunits.ranks import Ranks
from stoilo.server.engines.embedded.workunits.steps import (
    apply_action,
    change_workunit,
    end_workunit,
    forget_files,
    settle,
)
from stoilo.server.engines.embedded.workunits.transitioner import (
    next_actions,
    next_transition,
)
from stoilo.server.engines.embedded.workunits.verdicts import write_answers
from stoilo.server.engines.interface import (
    OutcomeKind,
    ReceivedResult,
    ResultOutcome,
    ResultProgress,
    WorkunitOutcome,
)
from stoilo.server.engines.workunits import check_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from sqlalchemy import ColumnElement, Connection, Select

    from stoilo.server.engines.embedded.db.database import Database
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.embedded.files.depot import Depot
    from stoilo.server.engines.workunits import WorkunitSpec

CANCELLED_TOGETHER = 64
OUTBOX_RETRY_S = 2
OUTBOX_RETRY_MOST_S = 300
OUTBOX_QUICK_RETRIES = 7
_FAILED = (ResultOutcome.CLIENT_ERROR, ResultOutcome.ABORTED, ResultOutcome.NOT_NEEDED)
_VIABLE = (Validity.CHECKED, Validity.INCONCLUSIVE, Validity.VALID)


class Store:
    """Workunits, results, outcomes.

    Attributes:
        offers: is told whenever there may be new results to hand out.
        ranks: say which of them go first.
    """

    def __init__(
        self,
        database: Database,  # where they are
        depot: Depot,  # their input files
        uploads: Path,  # where result files lie
        # says for each canonical result whether it is to be checked again
        spot_check: Callable[[], bool],
        # removes a result file that no result needs any more
        forget_upload: Callable[[str], None],
    ) -> None:
        self.offers = Offers()
        self.ranks = Ranks()
        self._database = database
        self._depot = depot
        self._uploads = uploads
        self._spot_check = spot_check
        self._forget_upload = forget_upload

    def create(self, specs: Sequence[WorkunitSpec], now: int) -> None:
        """Store workunits with their first results, all or none; see `Engine`."""
        for spec in specs:
            check_spec(spec)
        distinct = {spec.name: spec for spec in specs}
        every = [file for spec in distinct.values() for file in spec.files]
        with self._depot.hold(every) as stored, self._database.write() as connection:
            table = schema.workunits
            found = select_in(connection, [table.c.name], table.c.name, distinct)
            known = {row[0] for row in found}
            fresh = [spec for spec in distinct.values() if spec.name not in known]
            if fresh:
                self._depot.add_rows(connection, stored)
                insert_workunits(connection, fresh, self.ranks, now)
        self.offers.note()

    def cancel(self, names: Sequence[str], now: int) -> None:
        """Give workunits the outcome `CANCELLED` unless they have one."""
        table = schema.workunits
        for at in range(0, len(names), CANCELLED_TOGETHER):
            part = names[at : at + CANCELLED_TOGETHER]
            with self._database.write() as connection:
                rows = select(table.c.id).where(table.c.name.in_(part))
                for row in connection.scalars(rows).all():
                    end_workunit(connection, row, OutcomeKind.CANCELLED)
                    settle(connection, row, now)

    def due(self, now: int, most: int) -> list[int]:
        """Return rows of workunits that have something to do now."""
        table = schema.workunits
        found: list[int] = []
        with self._database.read() as connection:
            for state in (WorkunitState.RUNNING, WorkunitState.LINGERING):
                query = (
                    select(table.c.id)
                    .where(table.c.state == state.value, table.c.transition_at <= now)
                    .where(table.c.tell_at.is_(None))
                    .order_by(table.c.transition_at)
                    .limit(most)
                )
                found += connection.scalars(query)
        return found[:most]

    def advance(
        self, workunits: Iterable[int], answers: Iterable[Answers], now: int
    ) -> list[Question]:
        """Write `answers`, then move workunits as far as they go without questions.

        Those to be asked about again are put off. One transaction; returns what the
        validator has to be asked next.
        """
        rows = list(workunits)
        with self._database.write() as connection:
            for answer in answers:
                row = answer.workunit_id
                write_answers(connection, answer, now, self._spot_check)
                if answer.again_in_s:
                    change_workunit(
                        connection, row, transition_at=now + answer.again_in_s
                    )
                else:
                    rows.append(row)
            views = load_views(connection, rows)  # none of them moves another
            moved = [self._move(connection, row, views[row], now) for row in rows]
            asked = [one for one in moved if isinstance(one, tuple)]
            results = self._results(connection, [row for row, *_ in asked])
            questions = [Question(*one, results[one[0]]) for one in asked]
            closed = [one for one in moved if isinstance(one, int)]
            for row in closed:  # `purge` counts from it
                change_workunit(connection, row, transition_at=now)
            unused, uploads = self._forget(connection, closed)
            failed = _uploads_of_failed(connection, rows)
            offered = _has_unsent(connection, rows)
        if offered:
            self.offers.note()
        self._remove(unused, [*uploads, *failed])
        return questions

    def hasten(self, names: Collection[str]) -> None:
        """Make due what waits for validators: workunits, and outcomes to be told."""
        table = schema.workunits
        self._make_due(table.c.name.in_(list(names)))

    def retry_outcomes(self) -> None:
        """Make everything due at once (after a restart)."""
        self._make_due(true())

    def _make_due(self, which: ColumnElement[bool]) -> None:
        table = schema.workunits
        alive = table.c.state != WorkunitState.OVER.value
        waits = table.c.tell_at.is_not(None)
        with self._database.write() as connection:
            due = update(table).where(which)
            connection.execute(due.where(alive).values(transition_at=0))
            connection.execute(due.where(waits).values(tell_at=0))

    def outcomes(self, now: int, most: int) -> list[WorkunitOutcome]:
        """Return outcomes that the server has not taken yet, oldest first."""
        table = schema.workunits
        query = (
            select(table)
            .where(table.c.tell_at <= now)
            .order_by(table.c.tell_at, table.c.id)
            .limit(most)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            ids = [row.id for row in rows]
            views = load_views(connection, ids)
            results = self._results(connection, ids)
            return [_outcome(row, views[row.id], results[row.id]) for row in rows]

    def settled(self, names: Collection[str]) -> frozenset[str]:
        """Return those of `names` that do not exist, or whose outcome was taken."""
        table = schema.workunits
        query = select(table.c.name).where(
            table.c.name.in_(list(names)),
            table.c.outcome.is_(None) | table.c.tell_at.is_not(None),
        )
        with self._database.read() as connection:
            return frozenset(names) - frozenset(connection.scalars(query))

    def taken(self, names: Collection[str], now: int) -> bool:
        """Note that the server has taken outcomes; their files may go now.

        They stay while results may come that are compared with the canonical one: returns
        whether there are such workunits, which are due now.
        """
        if not names:
            return False
        table = schema.workunits
        with self._database.write() as connection:
            rows = connection.execute(
                select(table.c.id, table.c.state).where(table.c.name.in_(names))
            ).all()
            theirs = table.c.id.in_([row.id for row in rows])
            # over since now, or due: there may be results to compare
            values = {"tell_at": None, "transition_at": now}
            connection.execute(update(table).where(theirs).values(values))
            over = [row.id for row in rows if row.state == WorkunitState.OVER]
            unused, uploads = self._forget(connection, over)
        self._remove(unused, uploads)
        return len(over) < len(rows)

    def _forget(
        self, connection: Connection, workunits: Iterable[int]
    ) -> tuple[list[str], list[str]]:
        """Drop the claims of workunits; return inputs and uploads that can go."""
        digests, uploads = forget_files(connection, list(workunits))
        if not digests:
            return [], uploads
        return self.remove_unused(connection, digests), uploads

    def remove_unused(
        self, connection: Connection, digests: Iterable[str]
    ) -> list[str]:
        """Forget input files that nothing names; return those, for `Depot.unlink`."""
        keep = kept_digests(connection)
        return [*self._depot.remove_unused(connection, digests, keep)]

    def _remove(self, unused: Iterable[str], uploads: Iterable[str]) -> None:
        self._depot.unlink(unused)
        for upload in uploads:
            self._forget_upload(upload)

    def refused(self, name: str, now: int) -> None:
        """Note that the server could not take an outcome; it is offered again later."""
        table = schema.workunits
        delay = case(
            (table.c.told > OUTBOX_QUICK_RETRIES, OUTBOX_RETRY_MOST_S),
            else_=OUTBOX_RETRY_S * (table.c.told + 1),
        )
        with self._database.write() as connection:
            connection.execute(
                update(table)
                .where(table.c.name == name, table.c.tell_at.is_not(None))
                .values(told=table.c.told + 1, tell_at=now + delay)
            )

    def _move(
        self, connection: Connection, workunit_id: int, view: WorkunitView, now: int
    ) -> tuple[int, WorkunitView, Sequence[Check | Judge | Compare]] | int | None:
        """Apply actions until there is only waiting, a question, or nothing left.

        Returns what to ask, or the workunit's row when its files may go.
        """
        while True:
            actions = next_actions(view, now)
            asked = [act for act in actions if isinstance(act, Check | Judge | Compare)]
            match asked:
                case [Judge(names)] if view.in_force.min_quorum == 1:
                    # nobody is compared: the validator has nothing to say to this
                    said = Answers(workunit_id, judged=names)
                    said.judgement = Judgement(names[0], names)
                    write_answers(connection, said, now, self._spot_check)
                    view = load_view(connection, workunit_id)
                    continue
                case [_, *_]:
                    return workunit_id, view, asked
            if not actions:
                next_at = next_transition(view, now)
                change_workunit(connection, workunit_id, transition_at=next_at)
                return None
            for action in actions:
                apply_action(connection, workunit_id, action, now)
            if any(isinstance(action, Close) for action in actions):
                return workunit_id
            view = load_view(connection, workunit_id)

    def _results(
        self, connection: Connection, workunits: Collection[int]
    ) -> dict[int, dict[str, ReceivedResult]]:
        found: dict[int, dict[str, ReceivedResult]] = {row: {} for row in workunits}
        if not found:
            return {}
        rows = connection.execute(_received(), {"rows": list(found)}).all()
        for row in rows:
            found[row.workunit_id][row.name] = self._result(row)
        return found

    def _result(self, row: AnyRow) -> ReceivedResult:
        return ReceivedResult(
            name=row.name,
            workunit=row.workunit,
            path=self._uploads / row.upload_name,
            size=row.upload_size,
            digest=row.upload_digest,
            host_id=row.host_id,
            user_id=row.user_id,
            received_at=row.received_at,
            cpu_s=row.cpu_s,
            flops=row.flops,
        )


@cache
def _received() -> Select[Any]:
    """Return the query for the result files of workunits :rows, oldest results first."""
    table, of = schema.results, schema.workunits
    return (
        select(table, of.c.name.label("workunit"))
        .join(of, of.c.id == table.c.workunit_id)
        .where(
            table.c.workunit_id.in_(bindparam("rows", expanding=True)),
            table.c.outcome == ResultOutcome.SUCCESS.value,
            table.c.upload_digest.is_not(None),
        )
        .order_by(table.c.id)
    )


def _has_unsent(connection: Connection, workunits: list[int]) -> bool:
    table = schema.results
    query = select(table.c.id).where(
        table.c.workunit_id.in_(workunits),
        table.c.state == ResultProgress.UNSENT.value,
    )
    return connection.scalar(query.limit(1)) is not None


def _uploads_of_failed(connection: Connection, workunits: list[int]) -> list[str]:
    table = schema.results
    query = select(table.c.upload_name).where(
        table.c.workunit_id.in_(workunits),
        table.c.user_id != 0,
        table.c.outcome.in_([outcome.value for outcome in _FAILED]),
    )
    return list(connection.scalars(query))


def _outcome(
    row: AnyRow,  # of `workunits`
    view: WorkunitView,
    results: dict[str, ReceivedResult],
) -> WorkunitOutcome:
    good = [Validity.VALID] if row.canonical else list(_VIABLE)
    names = [result.name for result in view.results if result.validity in good]
    return WorkunitOutcome(
        workunit=row.name,
        kind=OutcomeKind(row.outcome),
        canonical=results.get(row.canonical) if row.canonical else None,
        valid=tuple(results[name] for name in names if name in results),
        code=row.code,
        message=row.message,
        quorum=1 if view.alone else 0,
    )
