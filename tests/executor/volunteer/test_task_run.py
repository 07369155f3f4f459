from __future__ import annotations

import pytest

from stoilo.core.boinc.messages import ResultState
from stoilo.core.errors import InternalError, TrustError, UnreachableError
from stoilo.executor.slot.layout import LaunchFailedError, PutOffError
from stoilo.executor.volunteer.task_run import Course, decide
from stoilo.executor.volunteer.transfer import Refused

COMPUTE, DOWNLOAD = ResultState.COMPUTE_ERROR, ResultState.DOWNLOAD_ERROR


@pytest.mark.parametrize(
    ("error", "counts", "course", "report"),
    [
        (UnreachableError("STO-X001", ""), (2, 0), Course.LATER, (0, 0)),
        (InternalError("STO-X008", ""), (2, 0), Course.LATER, (0, 0)),
        (PutOffError(60.0, "later"), (2, 99), Course.LATER, (0, 0)),
        (PutOffError(60.0, "later"), (0, 100), Course.FAIL, (COMPUTE, 195)),
        (InternalError("STO-S005", ""), (1, 0), Course.AGAIN, (0, 0)),
        (InternalError("STO-S005", ""), (2, 0), Course.FAIL, (COMPUTE, 195)),
        (TrustError("STO-X005", ""), (0, 0), Course.AGAIN, (0, 0)),
        (TrustError("STO-X042", ""), (0, 0), Course.AGAIN, (0, 0)),
        (TrustError("STO-X043", ""), (0, 0), Course.FAIL, (DOWNLOAD, -186)),
        (TrustError("STO-A057", ""), (0, 0), Course.FAIL, (DOWNLOAD, -186)),
        (Refused("STO-X005", ""), (0, 0), Course.FAIL, (DOWNLOAD, -186)),
        (LaunchFailedError(4, ""), (0, 0), Course.FAIL, (COMPUTE, 4)),
    ],
)
def test_trouble_decides_what_becomes_of_a_copy(error, counts, course, report):
    decision = decide(error, tries=counts[0], put_offs=counts[1])
    assert decision.course is course
    assert (decision.state, decision.exit_status) == report


@pytest.mark.parametrize(
    ("code", "seconds"), [("STO-X043", 600), ("STO-X008", 60), ("STO-S005", 0)]
)
def test_lasting_trouble_asks_for_no_more_work(code, seconds):
    assert decide(InternalError(code, ""), tries=0, put_offs=0).no_work_s == seconds


def test_put_off_waits_as_long_as_it_was_asked():
    decision = decide(PutOffError(300.0, "disk full"), tries=0, put_offs=0)
    assert decision.delay_s == 300.0
