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
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.types import Redundancy
from stoilo.executor.verifier.workunit import ADMISSION
from stoilo.server.db.bulk import assign_many, insert_many, select_in
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.database import put_off
from stoilo.server.engines.stock.project.directory import create_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from stoilo.server.engines.stock.project.database import Database
    from stoilo.server.engines.stock.project.directory import StockProject
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

    row: int  # ours
    name: str
    arguments: str  # of the call of the tool, which takes only workunits of the same
    line: str  # of its input


def call_arguments(app: str, redundancy: Redundancy) -> str:
    """Return the arguments of a call; a line that cannot be made stops no other."""
    # BOINC refuses a target above it; results are judged by the task's own number, which
    # the higher bound does not change
    success = max(redundancy.max_success, redundancy.target_results)
    return (
        f"--appname {app} --stdin --continue_on_error"
        f" --min_quorum {redundancy.min_quorum}"
        f" --target_nresults {redundancy.target_results}"
        f" --max_error_results {redundancy.max_error}"
        f" --max_total_results {redundancy.max_total}"
        f" --max_success_results {success} --delay_bound {redundancy.delay_bound_s}"
    )


def stdin_line(
    spec: WorkunitSpec,
    templates: tuple[str, str],  # of inputs and result, below ``templates``
    files: Sequence[str],  # names in the download folder, in the template's order
) -> str:
    """Return a workunit's line, without newline.

    Raises:
        UsageError: ``STO-B004`` for words that `create_work` would not read as they are.
    """
    words = [
        *("--wu_name", spec.name),
        *("--wu_template", f"templates/{templates[0]}"),
        *("--result_template", f"templates/{templates[1]}"),
        *files,
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
    in_order = sorted(jobs, key=lambda job: (job.arguments, job.row))
    for _, members in groupby(in_order, lambda job: job.arguments):
        every = tuple(members)
        for at in range(0, len(every), BATCH):
            yield every[at : at + BATCH]


log = logging.getLogger(__name__)
AT_ONCE: Final = 4000  # workunits that one flush looks at
# How long what could not be made waits, s, and how often twice as long.
_WAIT_S: Final = 10
_DOUBLINGS: Final = 3


@dataclass(frozen=True, slots=True)
class Draft:
    """A workunit's row to be."""

    spec: WorkunitSpec  # what was asked for
    line: str  # what `create_work` is told of it
    files: tuple[str, ...]  # in the download folder: the spec's, then the release
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
    known = dict(map(tuple, select_in(connection, columns, table.c.name, names)))
    _check_admissions(connection, drafts, known)
    fresh = {draft.spec.name: draft for draft in drafts if draft.spec.name not in known}
    insert_many(connection, table, [_row(draft, now) for draft in fresh.values()])
    needs = [
        {"workunit_id": row, "file": file}
        for name, row in select_in(connection, columns, table.c.name, fresh)
        for file in sorted({*fresh[name].files})
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
    columns = [needs.c.workunit_id, needs.c.file]
    found = select_in(connection, columns, needs.c.workunit_id, list(known.values()))
    claimed: dict[int, set[str]] = {}
    for row, file in found:
        claimed.setdefault(row, set()).add(file)
    for draft in drafts:
        there = claimed.get(known.get(draft.spec.name, 0))
        for file, name in zip(draft.spec.files, draft.files, strict=False):
            if file.open_name == ADMISSION and there and name not in there:
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
        "min_quorum": spec.redundancy.min_quorum,
        "max_error": spec.redundancy.max_error,
        "max_total": spec.redundancy.max_total,
        "arguments": call_arguments(spec.app, spec.redundancy),
        "last_at": last_at,
        "line": draft.line,
        "release_file": draft.release,
        "created_at": now,
        "outcome": OutcomeKind.ADMISSION_ENDED.value if late else None,
        "undelivered": int(late),
    }


class Creator:
    """Makes the workunits that have rows and no BOINC row.

    Args:
        database: the project's.
        project: whose tool is called.
        now: s since 1970.

    Attributes:
        turn: held while workunits are being made.
    """

    def __init__(
        self,
        database: Database,
        project: StockProject,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._project = project
        self._now = now
        self.turn = threading.Lock()

    def flush(self) -> bool:
        """Make what is to be made; returns whether anything was.

        What cannot be made waits, longer each time, and holds up nothing else.

        Raises:
            InternalError: ``STO-B005`` when the tool fails and nothing was made,
                ``STO-R030``; call again later.
        """
        with self.turn:
            jobs = self._pending()
            wanted = self._note_made(jobs)
            made, trouble = len(jobs) - len(wanted), None
            for members in batches(wanted):
                left, error = self._make(members)
                rows = [job.row for job in left]
                put_off(self._database, rows, self._now(), _WAIT_S, _DOUBLINGS)
                made += len(members) - len(left)
                trouble = trouble or error
        if trouble is not None and not made:
            raise trouble
        return made > 0

    def _make(self, members: Sequence[Job]) -> tuple[list[Job], StoiloError | None]:
        """Call the tool and believe the database; again while that makes some.

        Returns what was not made, and why when the tool itself failed.
        """
        arguments = members[0].arguments.split()
        left, before = list(members), len(members) + 1
        trouble: StoiloError | None = None
        while left and len(left) < before:
            before, trouble = len(left), None
            try:
                create_work(self._project, arguments, [job.line for job in left])
            except StoiloError as error:
                trouble = error
            left = self._note_made(left)
        if left:
            why = trouble or "create_work made nothing"
            log.warning("%d workunits wait for another try: %s", len(left), why)
        return left, trouble

    def _pending(self) -> list[Job]:
        """Return what has no BOINC row and is due: what was tried less often first."""
        table = tables.workunits
        query = (
            select(table.c.id, table.c.name, table.c.arguments, table.c.line)
            .where(
                table.c.boinc_id == 0,
                table.c.outcome.is_(None),
                table.c.retry_at <= self._now(),
            )
            .order_by(table.c.attempts, table.c.id)
            .limit(AT_ONCE)
        )
        with self._database.read() as connection:
            return [Job(*row) for row in connection.execute(query)]

    def _note_made(self, jobs: Sequence[Job]) -> list[Job]:
        """Write down which of `jobs` BOINC has; return the others."""
        there = boinc_tables.workunits
        columns, names = [there.c.name, there.c.id], [job.name for job in jobs]
        with self._database.read() as connection:
            rows = select_in(connection, columns, there.c.name, names)
        found = dict(map(tuple, rows))
        made = {job.row: found[job.name] for job in jobs if job.name in found}
        if made:
            column, key = tables.workunits.c.boinc_id, tables.workunits.c.id
            fixed = {"retry_at": 0, "attempts": 0}
            with self._database.write() as connection:
                assign_many(connection, column, key, made, fixed)
        return [job for job in jobs if job.name not in found]
