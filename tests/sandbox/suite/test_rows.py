"""One row's verdict and the exit code of all."""

import pytest

from stoilo.sandbox.suite.attempts import Attempted
from stoilo.sandbox.suite.selftest import Row, State, Verdict, judge_rows


def attempt(*, control, reached):
    return Attempted("landlock", "read a file", "alone", control, reached)


@pytest.mark.parametrize(
    ("attempts", "verdict"),
    [
        ([(True, False)], Verdict.HELD),
        ([(None, False)], Verdict.HELD),
        ([(False, False)], Verdict.NOT_TRIED),
        ([], Verdict.NOT_TRIED),
        ([(False, False), (True, False)], Verdict.HELD),
        ([(True, False), (True, True)], Verdict.DID_NOT_HOLD),
        ([(False, True)], Verdict.DID_NOT_HOLD),
    ],
)
def test_attempts_decide_what_a_row_says(attempts, verdict):
    tried = tuple(attempt(control=c, reached=r) for c, r in attempts)
    row = Row("landlock", mandatory=True, state=State.ACTIVE, attempts=tried)
    assert row.verdict is verdict


def test_missing_mechanism_is_missing_whatever_was_tried():
    tried = (attempt(control=True, reached=True),)
    row = Row("landlock", mandatory=True, state=State.MISSING, attempts=tried)
    assert row.verdict is Verdict.MISSING


def row(verdict, *, mandatory):
    states = {Verdict.MISSING: State.MISSING}
    tried = {
        Verdict.HELD: (attempt(control=True, reached=False),),
        Verdict.DID_NOT_HOLD: (attempt(control=True, reached=True),),
    }
    state = states.get(verdict, State.ACTIVE)
    return Row("x", mandatory=mandatory, state=state, attempts=tried.get(verdict, ()))


@pytest.mark.parametrize(
    ("mandatory", "optional", "code"),
    [
        ([Verdict.HELD], [Verdict.MISSING], 0),
        ([Verdict.HELD, Verdict.MISSING], [], 3),
        ([Verdict.NOT_TRIED], [], 4),
        ([Verdict.MISSING, Verdict.DID_NOT_HOLD], [], 4),
        ([Verdict.HELD], [Verdict.DID_NOT_HOLD], 4),
        ([Verdict.HELD], [Verdict.NOT_TRIED], 0),
    ],
)
def test_worst_mandatory_row_decides_the_exit_code(mandatory, optional, code):
    rows = [row(v, mandatory=True) for v in mandatory]
    rows += [row(v, mandatory=False) for v in optional]
    assert judge_rows(rows) == code
