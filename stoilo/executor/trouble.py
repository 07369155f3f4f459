"""What becomes of a copy whose run ended in an error. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from stoilo.core.errors import StoiloError, TrustError, UnreachableError
from stoilo.executor.messages import ResultState
from stoilo.executor.steering import LaunchFailedError, PutOffError
from stoilo.executor.transfer import Refused

__all__ = ["Course", "Decision", "decide"]

MOST_TRIES: Final = 3
MOST_PUT_OFFS: Final = 100  # BOINC: so many temporary exits, then the task has failed
EXIT_DOWNLOAD: Final = -186  # BOINC: ERR_RESULT_DOWNLOAD
EXIT_CHILD: Final = 195  # BOINC: the application's child failed
NO_PROGRAM_S: Final = 600.0
NO_DISK_S: Final = 60.0
FULL_DISK: Final = "STO-X008"
PROGRAM: Final = frozenset({"STO-X042", "STO-X043", "STO-X044"})
SPOILT: Final = frozenset({"STO-X005", "STO-X042"})
"""Bytes that changed on the way or on our disk: the next ones may be sound."""


class Course(Enum):
    """How it goes on."""

    LATER = "later"  # nobody's fault here: tried again after a pause
    AGAIN = "again"  # tried again, some times at most
    FAIL = "fail"  # reported as failed


@dataclass(frozen=True, slots=True)
class Decision:
    """How a copy goes on.

    Attributes:
        course: which way.
        delay_s: not before that many s.
        state: BOINC client state to report, of FAIL.
        exit_status: BOINC exit code to report, of FAIL.
        no_work_s: for how long no new work should be asked for, s.
    """

    course: Course
    delay_s: float = 0.0
    state: int = 0
    exit_status: int = 0
    no_work_s: float = 0.0


def decide(error: StoiloError, *, tries: int, put_offs: int) -> Decision:
    """Return how a copy goes on after `error`.

    Args:
        error: what its run ended in.
        tries: how often it was tried again already.
        put_offs: how often its program asked for another time already.
    """
    if error.code == FULL_DISK:
        return Decision(Course.LATER, no_work_s=NO_DISK_S)
    if isinstance(error, PutOffError) and put_offs < MOST_PUT_OFFS:
        return Decision(Course.LATER, error.delay_s)
    if isinstance(error, UnreachableError) and not isinstance(error, Refused):
        return Decision(Course.LATER)
    pause = NO_PROGRAM_S if error.code in PROGRAM else 0.0
    if _may_pass(error) and tries + 1 < MOST_TRIES:
        return Decision(Course.AGAIN, no_work_s=pause)
    return _failure(error, pause)


def _may_pass(error: StoiloError) -> bool:
    """Say whether another try may go better."""
    if isinstance(error, (Refused, LaunchFailedError, PutOffError)):
        return False
    return error.code in SPOILT or not isinstance(error, TrustError)


def _failure(error: StoiloError, no_work_s: float) -> Decision:
    """Return what is reported of a copy that failed by `error`."""
    state, exit_status = ResultState.COMPUTE_ERROR, EXIT_CHILD
    if isinstance(error, LaunchFailedError):
        exit_status = error.exit_status
    elif isinstance(error, (TrustError, Refused)) and not _may_pass(error):
        state, exit_status = ResultState.DOWNLOAD_ERROR, EXIT_DOWNLOAD
    return Decision(
        Course.FAIL, state=state, exit_status=exit_status, no_work_s=no_work_s
    )
