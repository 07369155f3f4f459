"""One result in a slot: inputs fetched, run, its file kept; and what follows from an error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from stoilo.core.boinc.messages import ResultState
from stoilo.core.errors import InternalError, StoiloError, TrustError, UnreachableError
from stoilo.core.signatures import parse_envelope
from stoilo.core.statement import parse_statement
from stoilo.executor.slot.executor import Executor
from stoilo.executor.slot.layout import LaunchFailedError, PutOffError
from stoilo.executor.verifier.installation import disk_trouble
from stoilo.executor.verifier.workunit import (
    ADMISSION,
    Disposition,
    ResultHeader,
    Work,
    open_name_bound,
    parse_result_header,
)
from stoilo.executor.volunteer.history import PastRun
from stoilo.executor.volunteer.ledger import Ledger, Phase, ResultRecord, touch
from stoilo.executor.volunteer.transfer import Refused, Transfer, matches

log = logging.getLogger(__name__)

EXIT_LATE = 200  # BOINC: not started by the deadline
EXIT_UPLOAD = -161
EXIT_CHILD: Final = 195  # BOINC: the application's child failed


class ResultRun:
    """What the slots of one volunteer do.

    Args:
        ledger: of the volunteer.
        transfer: to the project.
        executor: judges and runs.
        is_wanted: whether a copy may still be started, by result name.
        clock: s since 1970.
    """

    def __init__(
        self,
        ledger: Ledger,
        transfer: Transfer,
        executor: Executor,
        *,
        is_wanted: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._transfer = transfer
        self._executor = executor
        self._is_wanted = is_wanted
        self._clock = clock
        self._downloads = threading.Lock()

    def run(self, copy: ResultRecord) -> None:
        """Bring one copy from its inputs to its stored result, or to its failure.

        Raises:
            StoiloError: it did not come so far; `Volunteer` decides what becomes of it.
        """
        if self._clock() >= copy.deadline:
            self._ledger.fail(copy, ResultState.ABORTED, EXIT_LATE, "STO-E022")
            return
        with disk_trouble("this machine cannot run a copy"):
            self._run_in_time(copy)

    def deliver(self, copy: ResultRecord) -> None:
        """Send a finished result, or note that the project will never take it.

        Raises:
            UnreachableError, TrustError: the project is in trouble; try again later.
        """
        try:
            self._transfer.upload(copy, self._ledger.result_path(copy.result))
        except Refused as error:
            log.warning("%s: %s", copy.result, error)
            self._ledger.fail(copy, ResultState.COMPUTE_ERROR, EXIT_UPLOAD, error.code)
        else:
            self._ledger.save(msgspec.structs.replace(copy, phase=Phase.UPLOADED))

    def _run_in_time(self, copy: ResultRecord) -> None:
        paths = [self._fetch(copy, index) for index in range(len(copy.files))]
        touch(paths)
        if not self._is_wanted(copy.result):
            return
        names = [file.open_name for file in copy.files]
        files = tuple(zip(names, paths, strict=True))
        started = self._clock()
        data = self._executor.execute(Work(copy.result, copy.workunit, copy.app, files))
        elapsed = max(0.0, self._clock() - started)
        header = parse_result_header(data)
        if header.disposition is Disposition.REFUSED:
            self._drop_damaged(copy, paths)
        if len(data) > copy.upload_max:
            self._ledger.fail(copy, ResultState.COMPUTE_ERROR, EXIT_CHILD, "STO-X006")
            return
        timed = msgspec.structs.replace(copy, elapsed_s=elapsed)
        self._ledger.store_result(timed, data)
        self._ledger.note(_past_run(timed, header, dict(files), int(self._clock())))

    def _fetch(self, copy: ResultRecord, index: int) -> Path:
        file = copy.files[index]
        if file.info.nbytes > open_name_bound(file.open_name):
            raise TrustError("STO-A057", f"{file.open_name[:60]!r} is too large")
        target = self._ledger.files / file.info.name
        with self._downloads:
            self._transfer.download(file.info, target)
        return target

    def _drop_damaged(self, copy: ResultRecord, paths: list[Path]) -> None:
        """Remove cached inputs that are not what was announced, and try again.

        A refusal may come from our own disk; then it is nobody's fault.
        """
        damaged = [
            path
            for file, path in zip(copy.files, paths, strict=True)
            if not matches(file.info, path)
        ]
        for path in damaged:
            path.unlink(missing_ok=True)
        if damaged:
            raise InternalError("STO-X005", "a cached input was damaged")


def _past_run(
    copy: ResultRecord, header: ResultHeader, files: Mapping[str, Path], now: int
) -> PastRun:
    """Return the row of a run; its admission is read only where the verifier took it."""
    run = PastRun(now, copy.workunit, copy.app, "", header.code, copy.elapsed_s)
    if header.disposition is not Disposition.RAN or ADMISSION not in files:
        return msgspec.structs.replace(run, outcome=header.disposition.value)
    ended, function, level = header.status.value if header.status else "ran", "", ""
    with suppress(StoiloError, OSError):
        admission = parse_statement(
            parse_envelope(files[ADMISSION].read_bytes()).payload
        )
        function, level = admission.entry, admission.level
    return msgspec.structs.replace(run, outcome=ended, function=function, level=level)


MOST_TRIES: Final = 3
MOST_PUT_OFFS: Final = 100  # BOINC: so many temporary exits, then the task has failed
EXIT_DOWNLOAD: Final = -186  # BOINC: ERR_RESULT_DOWNLOAD
NO_PROGRAM_S: Final = 600.0
NO_DISK_S: Final = 60.0
FULL_DISK: Final = "STO-X008"
PROGRAM: Final = frozenset({"STO-X042", "STO-X043"})
SPOILT: Final = frozenset({"STO-X005", "STO-X042"})
"""Bytes that changed on the way or on our disk: the next ones may be sound."""


class Course(Enum):
    """How it goes on."""

    LATER = "later"  # nobody's fault here: tried again after a pause
    AGAIN = "again"  # tried again, some times at most
    FAIL = "fail"  # reported as failed


@dataclass(frozen=True, slots=True)
class Decision:
    """How a copy goes on."""

    course: Course  # which way
    delay_s: float = 0.0  # not before that many s
    state: int = 0  # BOINC client state to report, of FAIL
    exit_status: int = 0  # BOINC exit code to report, of FAIL
    no_work_s: float = 0.0  # for how long no new work should be asked for, s


def decide(error: StoiloError, *, tries: int, put_offs: int) -> Decision:
    """Return how a copy goes on after `error`."""
    if error.code == FULL_DISK:
        return Decision(Course.LATER, no_work_s=NO_DISK_S)
    if isinstance(error, PutOffError) and put_offs < MOST_PUT_OFFS:
        return Decision(Course.LATER, error.delay_s)
    if isinstance(error, UnreachableError) and not isinstance(error, Refused):
        return Decision(Course.LATER)
    untrusted = isinstance(error, TrustError) and error.code not in SPOILT
    refused = untrusted or isinstance(error, Refused)
    lasting = refused or isinstance(error, (LaunchFailedError, PutOffError))
    pause = NO_PROGRAM_S if error.code in PROGRAM else 0.0
    if not lasting and tries + 1 < MOST_TRIES:
        return Decision(Course.AGAIN, no_work_s=pause)
    state, exit_status = ResultState.COMPUTE_ERROR, EXIT_CHILD
    if refused:
        state, exit_status = ResultState.DOWNLOAD_ERROR, EXIT_DOWNLOAD
    elif isinstance(error, LaunchFailedError):
        exit_status = error.exit_status
    return Decision(Course.FAIL, 0.0, state, exit_status, pause)
