"""Workunits and results in the database: every durable step is one transaction.

What to do is decided by `transitioner`; this module reads its views, writes its actions
and keeps the outbox through which an outcome reaches the server exactly once: outcome
and outbox row are one transaction, and the row goes only after the server has taken it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, case, delete, exists, insert, select, update

from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    Check,
    Close,
    Compare,
    Judge,
    Validity,
    WorkunitView,
    load_view,
    load_views,
)
from stoilo.server.engines.embedded.files.app_versions import program_digests
from stoilo.server.engines.embedded.workunits.creation import (
    existing_names,
    insert_workunits,
)
from stoilo.server.engines.embedded.workunits.steps import (
    apply_action,
    end_workunit,
    forget_files,
    set_transition,
    settle,
)
from stoilo.server.engines.embedded.workunits.transitioner import (
    next_actions,
    next_transition,
)
from stoilo.server.engines.embedded.workunits.validator import Answers, Question
from stoilo.server.engines.embedded.workunits.verdicts import write_answers
from stoilo.server.engines.interface import (
    OutcomeKind,
    ReceivedResult,
    ResultOutcome,
    WorkunitOutcome,
)
from stoilo.server.engines.workunits import check_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Select

    from stoilo.server.engines.embedded.db.database import Database
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.embedded.files.depot import Depot
    from stoilo.server.engines.workunits import WorkunitSpec

INCONCLUSIVE_RETRY_S = 5
# Should nobody say that a validator has run: its answers may have been forgotten
PENDING_RETRY_S = 600
CANCELLED_TOGETHER = 64
OUTBOX_RETRY_S = 2
OUTBOX_RETRY_MOST_S = 300
OUTBOX_QUICK_RETRIES = 7
RELEASES_KEPT = 3
_FAILED = (ResultOutcome.CLIENT_ERROR, ResultOutcome.ABORTED, ResultOutcome.NOT_NEEDED)
_VIABLE = (Validity.CHECKED, Validity.INCONCLUSIVE, Validity.VALID)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A workunit that goes no further without the validator."""

    workunit_id: int
    view: WorkunitView
    actions: Sequence[Check | Judge | Compare]


class Store:
    """Workunits, results, outcomes."""

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
            known = set(existing_names(connection, distinct))
            fresh = [spec for spec in distinct.values() if spec.name not in known]
            if fresh:
                self._depot.add_rows(connection, stored)
                insert_workunits(connection, fresh, now)

    def set_release(self, stored_digest: str, connection: Connection) -> list[str]:
        """Make a stored file the release that goes out; return those now too old."""
        table = schema.settings
        rows = connection.execute(
            select(table.c.name, table.c.value).where(table.c.name.like("release-%"))
        ).all()
        kept = [row.value for row in sorted(rows) if row.value != stored_digest]
        newest = [stored_digest, *kept][:RELEASES_KEPT]
        connection.execute(delete(table).where(table.c.name.like("release-%")))
        connection.execute(
            insert(table),
            [
                {"name": f"release-{place}", "value": digest}
                for place, digest in enumerate(newest)
            ],
        )
        return [digest for digest in kept if digest not in newest]

    def kept(self, connection: Connection) -> tuple[str, ...]:
        """Return digests of files that stay though no workunit names them."""
        table = schema.settings
        releases = select(table.c.value).where(table.c.name.like("release-%"))
        return (*connection.scalars(releases), *program_digests(connection))

    def cancel(self, names: Sequence[str], now: int) -> None:
        """Give workunits the outcome `CANCELLED` unless they have one."""
        table = schema.workunits
        for at in range(0, len(names), CANCELLED_TOGETHER):
            part = names[at : at + CANCELLED_TOGETHER]
            with self._database.write() as connection:
                rows = select(table.c.id).where(table.c.name.in_(part))
                for row in connection.scalars(rows).all():
                    end_workunit(connection, row, OutcomeKind.CANCELLED, now)
                    settle(connection, row, now)

    def due(self, now: int, most: int) -> list[int]:
        """Return rows of workunits that have something to do now."""
        table, ended, box = schema.workunits, schema.lingering, schema.outbox
        late = table.c.transition_at <= now
        first = select(table.c.id).order_by(table.c.transition_at).limit(most)
        after_end = first.join(ended, ended.c.workunit_id == table.c.id).where(
            late, table.c.id.not_in(select(box.c.workunit_id))
        )
        with self._database.read() as connection:
            running = connection.scalars(first.where(table.c.outcome.is_(None), late))
            return [*running, *connection.scalars(after_end)][:most]

    def advance(
        self, workunits: Iterable[int], answers: Iterable[Answers], now: int
    ) -> list[Question]:
        """Write `answers`, then move `workunits` as far as they go without questions.

        One transaction; returns what the validator has to be asked next.
        """
        with self._database.write() as connection:
            for answer in answers:
                write_answers(connection, answer, now, self._spot_check)
            rows = list(workunits)
            views = load_views(connection, rows)  # none of them moves another
            moved = [self._move(connection, row, views[row], now) for row in rows]
            asked = [one for one in moved if isinstance(one, _Asked)]
            questions = self._questions(connection, asked)
            closed = [one for one in moved if isinstance(one, int)]
            _note_over(connection, closed, now)
            unused, uploads = self._forget(connection, closed)
            failed = _uploads_of_failed(connection, rows)
        self._remove(unused, [*uploads, *failed])
        return questions

    def postpone(self, workunit_id: int, until: int) -> None:
        """Look at a workunit again at `until`, s, when the validator had trouble."""
        with self._database.write() as connection:
            set_transition(connection, workunit_id, until)

    def hasten(self, names: Collection[str]) -> None:
        """Make due what waits for validators: workunits, and outcomes in the outbox."""
        table, ended, box = schema.workunits, schema.lingering, schema.outbox
        alive = table.c.outcome.is_(None) | table.c.id.in_(select(ended.c.workunit_id))
        named = table.c.name.in_(list(names))
        rows = select(table.c.id).where(named)
        with self._database.write() as connection:
            connection.execute(
                update(table).where(named, alive).values(transition_at=0)
            )
            connection.execute(
                update(box).where(box.c.workunit_id.in_(rows)).values(retry_at=0)
            )

    def outcomes(self, now: int, most: int) -> list[WorkunitOutcome]:
        """Return outcomes that the server has not taken yet, oldest first."""
        box, table = schema.outbox, schema.workunits
        query = (
            select(table)
            .join(box, box.c.workunit_id == table.c.id)
            .where(box.c.retry_at <= now)
            .order_by(box.c.retry_at, table.c.id)
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
        box, table = schema.outbox, schema.workunits
        waiting = exists().where(box.c.workunit_id == table.c.id)
        query = select(table.c.name).where(
            table.c.name.in_(list(names)), table.c.outcome.is_(None) | waiting
        )
        with self._database.read() as connection:
            return frozenset(names) - frozenset(connection.scalars(query))

    def taken(self, names: Collection[str], now: int) -> None:
        """Note that the server has taken outcomes; their files may go now.

        They stay while results may come that are compared with the canonical one.
        """
        if not names:
            return
        table, ended, box = schema.workunits, schema.lingering, schema.outbox
        with self._database.write() as connection:
            rows = connection.execute(
                select(table.c.id, ended.c.workunit_id.label("lingering"))
                .outerjoin(ended, ended.c.workunit_id == table.c.id)
                .where(table.c.name.in_(names))
            ).all()
            ids = [row.id for row in rows]
            connection.execute(delete(box).where(box.c.workunit_id.in_(ids)))
            _note_over(connection, ids, now)  # or due, to be compared with
            over = [row.id for row in rows if row.lingering is None]
            unused, uploads = self._forget(connection, over)
        self._remove(unused, uploads)

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
        keep = self.kept(connection)
        return [*self._depot.remove_unused(connection, digests, keep)]

    def _remove(self, unused: Iterable[str], uploads: Iterable[str]) -> None:
        self._depot.unlink(unused)
        for upload in uploads:
            self._forget_upload(upload)

    def refused(self, name: str, now: int) -> None:
        """Note that the server could not take an outcome; it is offered again later."""
        box, table = schema.outbox, schema.workunits
        row = select(table.c.id).where(table.c.name == name).scalar_subquery()
        delay = case(
            (box.c.attempts > OUTBOX_QUICK_RETRIES, OUTBOX_RETRY_MOST_S),
            else_=OUTBOX_RETRY_S * (box.c.attempts + 1),
        )
        with self._database.write() as connection:
            connection.execute(
                update(box)
                .where(box.c.workunit_id == row)
                .values(attempts=box.c.attempts + 1, retry_at=now + delay)
            )

    def retry_outbox(self) -> None:
        """Offer every waiting outcome at once (after a restart)."""
        with self._database.write() as connection:
            connection.execute(update(schema.outbox).values(retry_at=0))
            table, ended = schema.workunits, schema.lingering
            unfinished = table.c.outcome.is_(None) | table.c.id.in_(
                select(ended.c.workunit_id)
            )
            connection.execute(update(table).where(unfinished).values(transition_at=0))

    def _move(
        self, connection: Connection, workunit_id: int, view: WorkunitView, now: int
    ) -> _Asked | int | None:
        """Apply actions until there is only waiting, a question, or nothing left.

        Returns what to ask, or the workunit's row when its files may go.
        """
        while True:
            actions = next_actions(view, now)
            asked = [act for act in actions if isinstance(act, Check | Judge | Compare)]
            if asked:
                return _Asked(workunit_id, view, asked)
            if not actions:
                set_transition(connection, workunit_id, next_transition(view, now))
                return None
            for action in actions:
                apply_action(connection, workunit_id, action, now)
            if any(isinstance(action, Close) for action in actions):
                return workunit_id
            view = load_view(connection, workunit_id)

    def _questions(
        self, connection: Connection, asked: Sequence[_Asked]
    ) -> list[Question]:
        rows = [one.workunit_id for one in asked]
        results = self._results(connection, rows)
        return [_question(one, results[one.workunit_id]) for one in asked]

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
            cpu_s=row.cpu_s or 0.0,
            flops=row.flops or 0.0,
        )


def _note_over(connection: Connection, workunits: Collection[int], now: int) -> None:
    """Note when workunits were over, or are to be looked at; `purge` counts from it."""
    if workunits:
        table = schema.workunits
        theirs = table.c.id.in_(workunits)
        connection.execute(update(table).where(theirs).values(transition_at=now))


@cache
def _received() -> Select[Any]:
    """Return the query for the result files of workunits :rows, oldest results first."""
    table, of, used = schema.results, schema.workunits, schema.usages
    return (
        select(table, of.c.name.label("workunit"), used.c.cpu_s, used.c.flops)
        .join(of, of.c.id == table.c.workunit_id)
        .outerjoin(used, used.c.copy_id == table.c.id)
        .where(
            table.c.workunit_id.in_(bindparam("rows", expanding=True)),
            table.c.outcome == ResultOutcome.SUCCESS.value,
            table.c.upload_digest.is_not(None),
        )
        .order_by(table.c.id)
    )


def _uploads_of_failed(connection: Connection, workunits: list[int]) -> list[str]:
    table = schema.results
    query = select(table.c.upload_name).where(
        table.c.workunit_id.in_(workunits),
        table.c.user_id != 0,
        table.c.outcome.in_([outcome.value for outcome in _FAILED]),
    )
    return list(connection.scalars(query))


def _question(asked: _Asked, results: dict[str, ReceivedResult]) -> Question:
    view = asked.view
    sets = [act.results for act in asked.actions if isinstance(act, Judge)]
    rechecks = {result.name for result in view.results if result.recheck}
    late = tuple(act.result for act in asked.actions if isinstance(act, Compare))
    return Question(
        asked.workunit_id,
        checks=tuple(act.result for act in asked.actions if isinstance(act, Check)),
        judge=sets[0] if sets else (),
        pairs=late,
        doubt=view.doubt,
        opinions=tuple(name for name in late if view.doubt and name in rechecks),
        canonical=view.canonical,
        quorum=view.in_force.min_quorum,
        results=results,
    )


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
