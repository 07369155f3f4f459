"""Workunits into BOINC: our rows first, durably, then ``create_work`` in batches.

``create_work --stdin`` makes a thousand workunits in the time of one, but it is not one
step: a duplicate name makes the whole statement fail, a long list is several statements,
and it may die between them. So the rows written before are the truth. `Creator.flush`
takes what has no BOINC row yet, asks the database which of those exist after all, calls
the tool for the rest, and asks again: after a failure the next flush goes on with
exactly what is missing, and nothing is made twice, because names are unique in BOINC.

Callers that come while a flush is running wait for it and find their rows done by the
next one: many submitters share few calls. Redundancy can only be said once a call, so
workunits are sorted into classes and each class gets calls of its own.
"""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import asdict, astuple, dataclass, fields
from itertools import groupby
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, case, select, update

from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.types import Redundancy
from stoilo.executor.verifier.workunit import ADMISSION
from stoilo.server.db.bulk import assign_many, insert_many, select_in
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.project import boinc_tables, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.stock.project.database import Database
    from stoilo.server.engines.stock.project.directory import Tools
    from stoilo.server.engines.workunits import WorkunitSpec


# Of a line with its newline; `create_work` refuses a buffer that is full (4,095).
LINE_BYTES: Final = 4094

LINE_WORDS: Final = 98
# Workunits in one call: BOINC sends a statement for each MB, a half-way failure for
# each.
BATCH: Final = 1000

_WORD: Final = re.compile(r"[A-Za-z0-9_./-]{1,200}")


@dataclass(frozen=True, slots=True)
class Job:
    """One workunit to be made, as its row says."""

    row: int  # ours, 0 before it is written
    name: str
    app: str
    redundancy: Redundancy
    priority: int  # larger goes first
    input_template: str  # below ``templates``
    result_template: str
    files: tuple[str, ...]  # names in the download folder, in the template's order


def call_arguments(app: str, redundancy: Redundancy) -> list[str]:
    """Return the arguments of a call; a line that cannot be made stops no other."""
    # BOINC refuses a target above it; results are judged by the task's own number, which
    # the higher bound does not change
    success = max(redundancy.max_success, redundancy.target_results)
    return [
        *("--appname", app, "--stdin", "--continue_on_error"),
        *("--min_quorum", str(redundancy.min_quorum)),
        *("--target_nresults", str(redundancy.target_results)),
        *("--max_error_results", str(redundancy.max_error)),
        *("--max_total_results", str(redundancy.max_total)),
        *("--max_success_results", str(success)),
        *("--delay_bound", str(redundancy.delay_bound_s)),
    ]


def stdin_line(job: Job) -> str:
    """Return a workunit's line, without newline.

    Raises:
        UsageError: ``STO-B004`` for words that `create_work` would not read as they are.
    """
    words = [
        *("--wu_name", job.name),
        *("--wu_template", f"templates/{job.input_template}"),
        *("--result_template", f"templates/{job.result_template}"),
        *("--priority", str(job.priority)),
        *job.files,
    ]
    if len(words) > LINE_WORDS or sum(len(word) + 1 for word in words) > LINE_BYTES:
        raise UsageError(
            "STO-B004",
            "the workunit has more files than BOINC's create_work can be told of",
        )
    if not all(map(_WORD.fullmatch, words)):
        raise UsageError("STO-B004", "a name is not one that BOINC can be given")
    return " ".join(words)


def batches(jobs: Iterable[Job]) -> Iterator[tuple[Job, ...]]:
    """Yield what to call `create_work` with: one redundancy, `BATCH` workunits at most."""

    def call(job: Job) -> tuple[object, ...]:
        return (job.app, *astuple(job.redundancy))

    for _, members in groupby(
        sorted(jobs, key=lambda job: (*call(job), job.row)), call
    ):
        every = tuple(members)
        for at in range(0, len(every), BATCH):
            yield every[at : at + BATCH]


log = logging.getLogger(__name__)
AT_ONCE: Final = 4000  # workunits that one flush looks at
# Columns that `create_work` is told of.
_TOLD: Final = ("name", "app", "priority", "input_template", "result_template")
_REDUNDANCY: Final = tuple(one.name for one in fields(Redundancy))

_WAIT_S: Final = 10
# From so many tries on, the wait for the next is no longer than after the last.
_TRIES: Final = 6


@dataclass(frozen=True, slots=True)
class Draft:
    """A workunit's row to be."""

    spec: WorkunitSpec  # what was asked for
    job: Job  # what `create_work` is told of it
    # the one of its files that holds the release metadata, empty without
    release: str = ""


def insert_drafts(connection: Connection, drafts: Sequence[Draft], now: int) -> None:
    """Insert those that are new.

    One that no host could finish before its admission ends has its outcome at once, and
    BOINC never hears of it.

    Raises:
        UsageError: ``STO-B097`` when one that is there carries another admission.
    """
    table = tables.workunits
    names = [draft.spec.name for draft in drafts]
    columns = [table.c.name, table.c.id]
    found = select_in(connection, columns, table.c.name, names)
    known = {str(name): int(row) for name, row in found}
    _check_admissions(connection, drafts, known)
    fresh = {draft.spec.name: draft for draft in drafts if draft.spec.name not in known}
    insert_many(connection, table, [_row(draft, now) for draft in fresh.values()])
    rows = select_in(connection, [table.c.name, table.c.id], table.c.name, fresh)
    needs = [
        {"workunit_id": row, "position": position, "file": file}
        for name, row in rows
        for position, file in enumerate(fresh[name].job.files)
    ]
    insert_many(connection, tables.needs, needs)


def _check_admissions(
    connection: Connection, drafts: Sequence[Draft], known: Mapping[str, int]
) -> None:
    """Raise ``STO-B097`` for a draft whose name stands for another admission.

    So it is after a restore of the server's tables to a moment before the workunit was
    made. One that claims no files any more is over, and found as such (`settled`).
    """
    needs = tables.needs
    columns = [needs.c.workunit_id, needs.c.position, needs.c.file]
    found = select_in(connection, columns, needs.c.workunit_id, list(known.values()))
    claimed = {(row, position): file for row, position, file in found}
    for draft in drafts:
        row = known.get(draft.spec.name, 0)
        for position, file in enumerate(draft.spec.files):
            wanted = draft.job.files[position]
            there = claimed.get((row, position), wanted)
            if file.open_name == ADMISSION and there != wanted:
                raise UsageError(
                    "STO-B097", f"{draft.spec.name} is there with another admission"
                )


def _row(draft: Draft, now: int) -> dict[str, object]:
    spec = draft.spec
    last_at = spec.not_after - spec.redundancy.delay_bound_s
    late = now > last_at
    return {
        "name": spec.name,
        "app": spec.app,
        **asdict(spec.redundancy),
        "priority": spec.priority,
        "last_at": last_at,
        "input_template": draft.job.input_template,
        "result_template": draft.job.result_template,
        "release_file": draft.release,
        "created_at": now,
        "outcome": OutcomeKind.ADMISSION_ENDED.value if late else None,
        "undelivered": int(late),
    }


class Creator:
    """Makes the workunits that have rows and no BOINC row.

    Args:
        database: the project's.
        tools: BOINC's.
        now: s since 1970.

    Attributes:
        turn: held while workunits are being made.
    """

    def __init__(
        self,
        database: Database,
        tools: Tools,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._tools = tools
        self._now = now
        self.turn = threading.Lock()

    def flush(self) -> bool:
        """Make what is to be made; returns whether anything was.

        What cannot be made waits, longer each time, and holds up nothing else.

        Raises:
            InternalError: ``STO-B005`` when the tool fails and nothing was made,
                ``STO-E003``; call again later.
        """
        with self.turn:
            jobs = self._pending()
            wanted = self._note_made(jobs)
            made, trouble = len(jobs) - len(wanted), None
            for members in batches(wanted):
                left, error = self._make(members)
                self._postpone(left)
                made += len(members) - len(left)
                trouble = trouble or error
        if trouble is not None and not made:
            raise trouble
        return made > 0

    def _make(self, members: Sequence[Job]) -> tuple[list[Job], StoiloError | None]:
        """Call the tool and believe the database; again while that makes some.

        Returns what was not made, and why when the tool itself failed.
        """
        arguments = call_arguments(members[0].app, members[0].redundancy)
        left, before = list(members), len(members) + 1
        trouble: StoiloError | None = None
        while left and len(left) < before:
            before, trouble = len(left), None
            try:
                lines = [stdin_line(job) for job in left]
                self._tools.create_work(arguments, lines)
            except StoiloError as error:
                trouble = error
            left = self._note_made(left)
        if left:
            why = trouble or "create_work made nothing"
            log.warning("%d workunits wait for another try: %s", len(left), why)
        return left, trouble

    def _postpone(self, jobs: Sequence[Job]) -> None:
        """Let others go first."""
        table = tables.workunits
        tries = case((table.c.attempts < _TRIES, table.c.attempts + 1), else_=_TRIES)
        query = (
            update(table)
            .where(table.c.id == bindparam("row"), table.c.outcome.is_(None))
            .values(retry_at=self._now() + _WAIT_S * tries, attempts=tries)
        )
        if jobs:
            with self._database.write() as connection:
                connection.execute(query, [{"row": job.row} for job in jobs])

    def _pending(self) -> list[Job]:
        """Return what has no BOINC row and is due: what was tried less often first."""
        table, needs = tables.workunits, tables.needs
        query = (
            select(table.c.id, *(table.c[name] for name in (*_TOLD, *_REDUNDANCY)))
            .where(
                table.c.boinc_id == 0,
                table.c.outcome.is_(None),
                table.c.retry_at <= self._now(),
            )
            .order_by(table.c.attempts, table.c.id)
            .limit(AT_ONCE)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            found = select_in(
                connection,
                [needs.c.workunit_id, needs.c.position, needs.c.file],
                needs.c.workunit_id,
                [row.id for row in rows],
            )
            files: dict[int, list[tuple[int, str]]] = {row.id: [] for row in rows}
            for workunit, position, file in found:
                if position >= 0:
                    files[workunit].append((position, file))
        return [_job(row, files[row.id]) for row in rows]

    def _note_made(self, jobs: Sequence[Job]) -> list[Job]:
        """Write down which of `jobs` BOINC has; return the others."""
        there = boinc_tables.workunits
        with self._database.read() as connection:
            columns = [there.c.name, there.c.id]
            names = [job.name for job in jobs]
            found = dict(
                tuple(row)
                for row in select_in(connection, columns, there.c.name, names)
            )
        made = {job.row: found[job.name] for job in jobs if job.name in found}
        if made:
            column, key = tables.workunits.c.boinc_id, tables.workunits.c.id
            fixed = {"retry_at": 0, "attempts": 0}
            with self._database.write() as connection:
                assign_many(connection, column, key, made, fixed)
        return [job for job in jobs if job.name not in found]


def _job(row: Row, files: list[tuple[int, str]]) -> Job:  # type: ignore[type-arg]  # a row of `workunits`
    found = row._mapping  # noqa: SLF001 - SQLAlchemy's name for it
    return Job(
        row=row.id,
        redundancy=Redundancy(**{name: found[name] for name in _REDUNDANCY}),
        files=tuple(file for _, file in sorted(files)),
        **{name: found[name] for name in _TOLD},
    )
