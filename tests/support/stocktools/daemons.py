"""BOINC's daemons, played: transitioner, validator, assimilator, file deleter.

Each does what its original does to the rows, in the original's order, from one reading of
them: what it writes back is what it read, changed. So whatever somebody else has written
meanwhile into a column of a whole-row update is lost here as there (a cancellation during
the validator's pass, for one). The validator and the assimilator run the project's real
scripts and believe their exit statuses; an assimilator's script that does not end with 0
ends the daemon.
"""

from __future__ import annotations

import random
import re
import subprocess
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.project.directory import place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.stocktools.database import FakeDatabase, FakeRow
    from tests.support.stocktools.project import FakeProject

__all__ = ["AssimilatorEnded", "FakeDaemons"]

NEVER: Final = 2**31 - 1
SAFETY_S: Final = 10 * 86_400
TRANSIENT_S: Final = 6 * 3600
SCRIPT_S: Final = 120
UNSENT, IN_PROGRESS, OVER = 2, 4, 5
SUCCESS, CLIENT_ERROR, NO_REPLY, DIDNT_NEED, VALIDATE_ERROR, DETACHED = 1, 3, 4, 5, 6, 7
INIT, VALID, INVALID, NO_CHECK, INCONCLUSIVE = 0, 1, 2, 3, 4
READY, DONE = 1, 2
ABORTED_VIA_GUI: Final = 203
QUOTA: Final = 500
TRANSIENT: Final = 3


class AssimilatorEnded(Exception):
    """A script did not end with 0, and so BOINC's assimilator has ended."""


class FakeDaemons:
    """The daemons of a project; `step` lets each make one pass.

    Args:
        project: of the fake kind.
        now: s since 1970.

    Attributes:
        validates: the validator runs; False: it has been stopped.
        assimilates: the assimilator runs.
        between: called in the middle of the validator's pass, before it writes.
    """

    def __init__(self, project: FakeProject, now: Callable[[], int]) -> None:
        self._project = project
        self._now = now
        self._database = project.open_database()
        self.validates = self.assimilates = True
        self.between: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def step(self) -> bool:
        """Let each daemon make a pass; returns whether any did something."""
        did = self.transition()
        if self.validates:
            did |= self.validate()
        if self.assimilates:
            did |= self.assimilate()
        return did | self.delete_files()

    def transition(self) -> bool:
        """Let the transitioner look at what is due."""
        due = self._database.rows(
            "SELECT * FROM workunit WHERE transition_time <= ? ORDER BY id", self._now()
        )
        for workunit in due:
            _Transition(self._database, self._project, workunit, self._now()).run()
        return bool(due)

    def validate(self) -> bool:
        """Let the validator judge workunits that have something new."""
        due = self._database.rows(
            "SELECT * FROM workunit WHERE need_validate = 1 ORDER BY id"
        )
        for workunit in due:
            results = _results(self._database, workunit)
            if workunit.canonical_resultid:
                self._check_stragglers(workunit, results)
            else:
                self._look_for_quorum(workunit, results)
            self._write_workunit(workunit)
        return bool(due)

    def assimilate(self) -> bool:
        """Let the assimilator tell of ends; raises `AssimilatorEnded`."""
        due = self._database.rows(
            "SELECT * FROM workunit WHERE assimilate_state = ? ORDER BY id", READY
        )
        for workunit in due:
            if workunit.canonical_resultid:
                canonical = self._database.row(
                    "SELECT * FROM result WHERE id = ?", workunit.canonical_resultid
                )
                assert canonical is not None
                arguments = [str(workunit.id), str(self._file(canonical))]
            else:
                mask, number = str(workunit.error_mask), str(workunit.id)
                arguments = ["--error", mask, workunit.name, number, "0"]
            if status := self._script("stoilo_assimilate", arguments):
                raise AssimilatorEnded(f"exit status {status}")
            self._database.run(
                "UPDATE workunit SET assimilate_state = ?, transition_time = ?"
                " WHERE id = ?",
                DONE,
                self._now(),
                workunit.id,
            )
        return bool(due)

    def delete_files(self) -> bool:
        """Let the file deleter remove what is marked; inputs say they are to stay."""
        workunits = self._database.run(
            "UPDATE workunit SET file_delete_state = 2 WHERE file_delete_state = 1"
        )
        results = self._database.rows(
            "SELECT * FROM result WHERE file_delete_state = 1"
        )
        for result in results:
            self._file(result).unlink(missing_ok=True)
            self._database.run(
                "UPDATE result SET file_delete_state = 2 WHERE id = ?", result.id
            )
        return bool(workunits or results)

    def _file(self, result: FakeRow) -> Path:
        return place(self._project.project.upload, output_name(result), 1024)

    def _script(self, name: str, arguments: list[str]) -> int:
        """Run a script as BOINC does: from a folder of the project, by its short path."""
        return subprocess.run(
            [f"../bin/{name}", *arguments],
            cwd=self._project.root / "tmp_fake",
            timeout=SCRIPT_S,
            check=False,
        ).returncode

    def _check(self, result: FakeRow) -> int:
        return self._script("stoilo_validate", [str(self._file(result))])

    def _compare(self, left: FakeRow, right: FakeRow) -> int:
        paths = [str(self._file(left)), str(self._file(right))]
        return self._script("stoilo_compare", paths)

    def _check_stragglers(self, workunit: FakeRow, results: list[FakeRow]) -> None:
        canonical = next(
            one for one in results if one.id == workunit.canonical_resultid
        )
        for result in results:
            if not _came_back(result) or result.validate_state not in {
                INIT,
                INCONCLUSIVE,
            }:
                continue
            answers = [self._check(result), self._check(canonical)]
            if not any(answers):
                answers.append(self._compare(result, canonical))
            if TRANSIENT in answers:
                workunit["transition_time"] = min(
                    self._now() + TRANSIENT_S, workunit.transition_time
                )
                return
            if answers[0]:
                result["outcome"] = VALIDATE_ERROR
            result["validate_state"] = INVALID if any(answers) else VALID
            workunit["transition_time"] = self._now()
            self._write_result(result)

    def _look_for_quorum(self, workunit: FakeRow, results: list[FakeRow]) -> None:
        viable = [
            one for one in results if _came_back(one) and one.validate_state != INVALID
        ]
        if len(viable) < workunit.min_quorum:
            return
        canonical, retry = self._check_set(workunit, viable)
        self.between()
        if retry:
            workunit["transition_time"] = min(
                self._now() + TRANSIENT_S, workunit.transition_time
            )
        left = 0
        for result in viable:
            if result.outcome != SUCCESS or result.validate_state == INVALID:
                workunit["transition_time"] = self._now()
            else:
                left += 1
            if result.validate_state == INIT:
                result["validate_state"] = INCONCLUSIVE
            self._write_result(result)
        if canonical is not None:
            self._end(workunit, results, canonical)
            return
        if left > workunit.max_success_results:
            workunit["error_mask"] |= 4
            workunit["transition_time"] = self._now()
        if left >= workunit.target_nresults:
            workunit["target_nresults"] = left + 1
            workunit["transition_time"] = self._now()

    def _check_set(
        self, workunit: FakeRow, viable: list[FakeRow]
    ) -> tuple[FakeRow | None, bool]:
        """Return the canonical result, if there is one, and whether to ask again."""
        good, retry = self._check_each(viable)
        if len(good) < workunit.min_quorum:
            return None, retry
        for candidate in good:
            same = self._alike(candidate, good)
            if same is None:
                return None, True
            if len(same) >= workunit.min_quorum // 2 + 1:
                for result in good:
                    result["validate_state"] = VALID if result in same else INVALID
                return candidate, retry
        return None, retry

    def _check_each(self, viable: list[FakeRow]) -> tuple[list[FakeRow], bool]:
        """Return the results that pass, and whether one is to be asked about again."""
        good, retry = [], False
        for result in viable:
            answer = self._check(result)
            if answer == 0:
                good.append(result)
            elif answer == TRANSIENT:
                retry = True
            else:
                result["outcome"] = VALIDATE_ERROR
                result["validate_state"] = INVALID
        return good, retry

    def _alike(self, candidate: FakeRow, good: list[FakeRow]) -> list[FakeRow] | None:
        """Return the results that equal one, itself included; None: ask again."""
        same = [candidate]
        for other in good:
            answer = 1 if other is candidate else self._compare(candidate, other)
            if answer == TRANSIENT:
                return None
            if answer == 0:
                same.append(other)
        return same

    def _end(
        self, workunit: FakeRow, results: list[FakeRow], canonical: FakeRow
    ) -> None:
        workunit["canonical_resultid"] = canonical.id
        workunit["assimilate_state"] = READY
        workunit["transition_time"] = NEVER
        for result in results:
            if result.server_state == UNSENT:
                result["server_state"], result["outcome"] = OVER, DIDNT_NEED
                self._write_result(result)

    def _write_result(self, result: FakeRow) -> None:
        self._database.run(
            "UPDATE result SET validate_state = ?, server_state = ?, outcome = ?"
            " WHERE id = ?",
            result.validate_state,
            result.server_state,
            result.outcome,
            result.id,
        )
        if result.validate_state in {VALID, INVALID}:
            self._write_record(result)

    def _write_record(self, result: FakeRow) -> None:
        where = "WHERE host_id = ? AND app_version_id = ?"
        if result.validate_state == VALID:
            changes = (
                "max_jobs_per_day = max_jobs_per_day + 1,"
                " consecutive_valid = consecutive_valid + 1"
            )
        else:
            changes = (
                "consecutive_valid = 0, max_jobs_per_day = max_jobs_per_day"
                f" - (max_jobs_per_day > {QUOTA})"
            )
        self._database.run(
            f"UPDATE host_app_version SET {changes} {where}",  # noqa: S608 - our own words
            result.hostid,
            result.app_version_id,
        )

    def _write_workunit(self, workunit: FakeRow) -> None:
        """Write a workunit back as it was read, changed: the original's own hazard."""
        self._database.run(
            "UPDATE workunit SET need_validate = 0, error_mask = ?, assimilate_state = ?,"
            " transition_time = ?, target_nresults = ?, canonical_resultid = ?"
            " WHERE id = ?",
            workunit.error_mask,
            workunit.assimilate_state,
            workunit.transition_time,
            workunit.target_nresults,
            workunit.canonical_resultid,
            workunit.id,
        )


def output_name(result: FakeRow) -> str:
    """Return the name of the file that a result's host is to upload."""
    text = result.xml_doc_in
    text = text.decode() if isinstance(text, bytes) else text
    match = re.search(r"<name>([^<]+)</name>", text)
    assert match is not None
    return str(match[1])


def _results(database: FakeDatabase, workunit: FakeRow) -> list[FakeRow]:
    return database.rows(
        "SELECT * FROM result WHERE workunitid = ? ORDER BY id", workunit.id
    )


def _came_back(result: FakeRow) -> bool:
    return bool(result.server_state == OVER and result.outcome == SUCCESS)


class _Transition:
    """One look of the transitioner at one workunit."""

    def __init__(
        self, database: FakeDatabase, project: FakeProject, workunit: FakeRow, now: int
    ) -> None:
        self._database = database
        self._project = project
        self._workunit = workunit
        self._before = dict(workunit)
        self._now = now
        self._results = _results(database, workunit)

    def run(self) -> None:
        """Do all of it."""
        for result in self._results:
            self._time_out(result)
        new, needed = self._count()
        if new:
            self._workunit["need_validate"] = 1
        if self._workunit.error_mask:
            self._drop()
        elif not self._workunit.canonical_resultid:
            for number in range(needed):
                self._make_result(len(self._results) + number)
        self._mark_files()
        self._write()

    def _time_out(self, result: FakeRow) -> None:
        if result.server_state == IN_PROGRESS and result.report_deadline < self._now:
            result["server_state"], result["outcome"] = OVER, NO_REPLY
            self._write_result(result)

    def _count(self) -> tuple[bool, int]:
        """Return whether there is something new to judge, and how many to make."""
        workunit, results = self._workunit, self._results
        waiting = sum(one.server_state in {1, UNSENT, IN_PROGRESS} for one in results)
        over = [one for one in results if one.server_state == OVER]
        success = sum(
            one.outcome == SUCCESS and one.validate_state != INVALID for one in over
        )
        errors = sum(
            one.outcome == VALIDATE_ERROR
            or (one.outcome == CLIENT_ERROR and one.exit_status != ABORTED_VIA_GUI)
            for one in over
        )
        fresh = any(
            one.outcome == SUCCESS and one.validate_state == INIT for one in over
        )
        if errors > workunit.max_error_results:
            workunit["error_mask"] |= 2
        needed = max(0, workunit.target_nresults - waiting - success)
        allowed = workunit.max_total_results - len(results)
        if allowed < 0 or (allowed == 0 and needed > 0):
            workunit["error_mask"] |= 8
        return fresh and success >= workunit.min_quorum, min(needed, max(allowed, 0))

    def _drop(self) -> None:
        for result in self._results:
            if result.server_state in {1, UNSENT}:
                result["server_state"], result["outcome"] = OVER, DIDNT_NEED
                self._write_result(result)
            elif _came_back(result) and result.validate_state in {INIT, INCONCLUSIVE}:
                result["validate_state"] = NO_CHECK
                self._write_result(result)
        if self._workunit.assimilate_state == INIT:
            self._workunit["assimilate_state"] = READY

    def _make_result(self, number: int) -> None:
        name = f"{self._workunit.name}_{number}"
        output = f"{name}_r{random.randrange(2**31)}_0"
        template = self._project.root / self._workunit.result_template_file
        self._database.insert(
            "result",
            [
                {
                    "workunitid": self._workunit.id,
                    "name": name,
                    "server_state": UNSENT,
                    "appid": self._workunit.appid,
                    "priority": self._workunit.priority,
                    "xml_doc_in": template.read_text().replace("<OUTFILE_0/>", output),
                }
            ],
        )

    def _mark_files(self) -> None:
        """Let files go once the workunit is assimilated and nothing is to come."""
        if self._workunit.assimilate_state != DONE:
            return
        settled = all(
            one.server_state == OVER
            and not (_came_back(one) and one.validate_state == INIT)
            and not (one.outcome == NO_REPLY and self._now < one.report_deadline)
            for one in self._results
        )
        if settled and self._workunit.file_delete_state == INIT:
            self._workunit["file_delete_state"] = 1
        for result in self._results:
            if result.id == self._workunit.canonical_resultid and not settled:
                continue
            judged = result.outcome == SUCCESS and result.validate_state != INIT
            gone = judged or result.outcome == CLIENT_ERROR
            if gone and result.file_delete_state == INIT:
                result["file_delete_state"] = 1
                self._write_result(result)

    def _write_result(self, result: FakeRow) -> None:
        self._database.run(
            "UPDATE result SET server_state = ?, outcome = ?, validate_state = ?,"
            " file_delete_state = ? WHERE id = ?",
            result.server_state,
            result.outcome,
            result.validate_state,
            result.file_delete_state,
            result.id,
        )

    def _write(self) -> None:
        """Write what has changed; the next look unless somebody else asked for one."""
        workunit = self._workunit
        over = workunit.canonical_resultid or workunit.error_mask
        when = NEVER if over else self._now + SAFETY_S
        open_copies = self._database.rows(
            "SELECT report_deadline FROM result WHERE workunitid = ? AND server_state = ?",
            workunit.id,
            IN_PROGRESS,
        )
        when = min([when, *(one.report_deadline for one in open_copies)])
        if when < self._now:
            when = self._now + 60
        for column in (
            "need_validate",
            "error_mask",
            "assimilate_state",
            "file_delete_state",
        ):
            if workunit[column] != self._before[column]:
                self._database.run(
                    f"UPDATE workunit SET {column} = ? WHERE id = ?",  # noqa: S608 - our own names
                    workunit[column],
                    workunit.id,
                )
        self._database.run(
            "UPDATE workunit SET transition_time ="
            " CASE WHEN transition_time = ? THEN ? ELSE ? END WHERE id = ?",
            self._before["transition_time"],
            when,
            self._now,
            workunit.id,
        )
