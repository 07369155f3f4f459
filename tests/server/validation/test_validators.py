"""What a validator's run comes to: its researcher's fault, or nobody's here."""

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.errors import UserCodeError
from stoilo.sandbox.process.report import JailReport, JailStatus
from stoilo.server.app.jails import read_report
from stoilo.server.validation.validators import (
    Call,
    JailAnswer,
    JailTrouble,
    ValidatorProgram,
    Validators,
)

PROGRAM = ValidatorProgram(b"", "check", "same", "pure")


class FixedJail:
    """A jail in which every run ends alike."""

    def __init__(self, answer):
        self.answer = answer

    def run(self, _request, _limits, _watch):
        return self.answer


def judge(answer):
    return Validators(lambda _: FixedJail(answer)).decide(Call(PROGRAM, "init", (b"",)))


@pytest.mark.parametrize("code", ["STO-S010", "STO-S011", "STO-S020", "STO-S021"])
def test_process_that_a_validator_ends_is_its_researchers_fault(code):
    killed = code in {"STO-S010", "STO-S011"}
    status = JailStatus.KILLED if killed else JailStatus.CRASHED
    answer = read_report(JailReport(status, code=code, detail="why"))
    with pytest.raises(UserCodeError, match="STO-R059"):
        judge(answer)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (JailStatus.CRASHED, "STO-S005"),
        (JailStatus.REFUSED, "STO-S002"),
    ],
)
def test_fault_of_the_host_is_asked_again(status, code):
    with pytest.raises(JailTrouble, match="STO-R042"):
        read_report(JailReport(status, code=code))


@pytest.mark.parametrize(
    "frame", [b"", b"STO", skeleton.encode([]), skeleton.encode({"verdict": "maybe"})]
)
def test_answer_that_no_validate_job_writes_is_the_validators(frame):
    with pytest.raises(UserCodeError, match="STO-R059"):
        judge(JailAnswer(finished=True, frame=frame))


def test_control_answer_of_the_job_is_believed():
    frame = skeleton.encode({"verdict": "true", "error_text": ""})
    assert judge(JailAnswer(finished=True, frame=frame)) is True
