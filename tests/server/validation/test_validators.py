"""What a validator's run comes to: its researcher's fault, or nobody's here."""

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.errors import UserCodeError
from stoilo.sandbox.process.report import JailReport, JailStatus
from stoilo.server.validation.validators import (
    Call,
    JudgeTrouble,
    ValidatorProgram,
    Validators,
)

PROGRAM = ValidatorProgram(b"", "check", "same", "pure")


class FixedJail:
    """A jail in which every run ends alike."""

    def __init__(self, answer):
        self.answer = answer

    def run(self, _request, _limits, *, watch):
        del watch
        return self.answer


def judge(answer):
    return Validators(lambda *_: FixedJail(answer)).decide(
        Call(PROGRAM, "init", (b"",))
    )


@pytest.mark.parametrize("code", ["STO-S010", "STO-S011", "STO-S020", "STO-S021"])
def test_process_that_a_validator_ends_is_its_researchers_fault(code):
    killed = code in {"STO-S010", "STO-S011"}
    status = JailStatus.KILLED if killed else JailStatus.CRASHED
    with pytest.raises(UserCodeError, match="STO-R059"):
        judge(JailReport(status, code=code, detail="why"))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (JailStatus.CRASHED, "STO-S005"),
        (JailStatus.REFUSED, "STO-S002"),
    ],
)
def test_fault_of_the_host_is_asked_again(status, code):
    with pytest.raises(JudgeTrouble, match="STO-R042"):
        judge(JailReport(status, code=code))


@pytest.mark.parametrize(
    "frame", [b"", b"STO", skeleton.encode([]), skeleton.encode({"verdict": "maybe"})]
)
def test_answer_that_no_validate_job_writes_is_the_validators(frame):
    with pytest.raises(UserCodeError, match="STO-R059"):
        judge(JailReport(JailStatus.FINISHED, frame=frame))


def test_control_answer_of_the_job_is_believed():
    frame = skeleton.encode({"verdict": "true", "error_text": ""})
    assert judge(JailReport(JailStatus.FINISHED, frame=frame)) is True
