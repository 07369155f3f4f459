"""The self-test tells a jail that holds from one with a mechanism switched off."""

import sys

import pytest

from stoilo.core.errors import InternalError
from stoilo.policies.levels import load_level
from stoilo.sandbox.kernel.mechanisms import KernelHost, Mechanism
from stoilo.sandbox.process.supervisor import zygote_command
from stoilo.sandbox.suite.selftest import (
    OPTIONAL,
    State,
    Verdict,
    judge_rows,
    run_selftest,
    trials_command,
)

# Switched off in the children of both, by replacing what the child's plan would apply.
WITHOUT_STEP = """
from stoilo.sandbox.process import child
child.STEPS = tuple(s for s in child.STEPS if s.mechanism.value != {name!r})
"""
WITHOUT_FILTER = """
import os
from stoilo.sandbox.kernel import calls
calls.load_filter = lambda program: os.dup2(0, 6)
"""
FAILING_STEP = """
from stoilo.sandbox.process import child
def fail(plan):
    raise OSError(1, "switched off by a test")
child.STEPS = tuple(
    child.Step(s.mechanism, fail) if s.mechanism.value == {name!r} else s
    for s in child.STEPS
)
"""
IN_CHILD = [m.value for m in Mechanism if m is not Mechanism.LINUX]


def weaken(command, weakening):
    """Return a command whose process is weakened just before it begins."""
    *interpreter, entry = command()
    first = "from stoilo.sandbox"
    return lambda: [*interpreter, entry.replace(first, weakening + first, 1)]


def run_weakened(weakening, name):
    return run_selftest(
        load_level("pure"),
        zygote=weaken(zygote_command, weakening),
        trials=weaken(trials_command, weakening),
        only=(name,),
    )


@pytest.fixture(scope="module")
def rows():
    return run_selftest(load_level("pure"))


def test_every_mandatory_mechanism_holds_here(rows):
    mandatory = {row.mechanism: row for row in rows if row.mandatory}
    assert list(mandatory) == [m.value for m in Mechanism]
    assert {row.verdict for row in mandatory.values()} == {Verdict.HELD}
    assert {row.state for row in mandatory.values()} == {State.ACTIVE}
    assert judge_rows(rows) == 0


def test_every_mechanism_of_the_child_is_tried_alone_with_a_control(rows):
    for row in rows:
        if row.mechanism in IN_CHILD:
            alone = [a for a in row.attempts if a.place == "alone"]
            assert any(attempt.control for attempt in alone), row


def test_an_optional_mechanism_is_held_or_missing(rows):
    optional = {r.mechanism: r.verdict for r in rows if not r.mandatory}
    assert tuple(optional) == OPTIONAL
    assert Verdict.DID_NOT_HOLD not in optional.values()


@pytest.mark.parametrize("name", [name for name in IN_CHILD if name != "seccomp"])
def test_mechanism_that_is_silently_left_out_did_not_hold(name):
    (row,) = run_weakened(WITHOUT_STEP.format(name=name), name)
    assert row.verdict is Verdict.DID_NOT_HOLD
    assert judge_rows((row,)) == 4


def test_filter_that_is_silently_left_out_did_not_hold():
    (row,) = run_weakened(WITHOUT_FILTER, "seccomp")
    assert row.verdict is Verdict.DID_NOT_HOLD
    through = {(a.place, a.words) for a in row.attempts if a.reached}
    assert ("alone", "make a socket") in through
    assert ("jail", "find a run without a filter") in through


def test_zygote_without_its_filter_is_found():
    without = "from stoilo.sandbox.kernel import calls\ncalls.close_process = print\n"
    (row,) = run_weakened(without, "seccomp")
    through = {attempt.words for attempt in row.attempts if attempt.reached}
    assert "find a zygote without a filter" in through
    assert row.verdict is Verdict.DID_NOT_HOLD


@pytest.mark.parametrize("name", ["landlock", "rlimits", "not_dumpable"])
def test_mechanism_that_cannot_be_applied_is_missing_not_held(name):
    (row,) = run_weakened(FAILING_STEP.format(name=name), name)
    assert (row.verdict, row.attempts) == (Verdict.MISSING, ())
    assert judge_rows((row,)) == 3


class Without(KernelHost):
    """A host that lacks one mechanism."""

    def __init__(self, lacking):
        self.lacking = lacking

    def has(self, mechanism):
        return mechanism is not self.lacking and super().has(mechanism)


@pytest.mark.parametrize("mechanism", [Mechanism.LANDLOCK, Mechanism.SECCOMP])
def test_mechanism_that_the_host_lacks_is_missing(mechanism):
    only = (mechanism.value, "own_session")
    rows = run_selftest(load_level("pure"), host=Without(mechanism), only=only)
    assert {row.mechanism: row.verdict for row in rows} == {
        mechanism.value: Verdict.MISSING,
        "own_session": Verdict.HELD,
    }
    assert judge_rows(rows) == 3


def test_trials_that_break_are_our_fault_not_a_verdict():
    def broken():
        return [sys.executable, "-c", "raise SystemExit('broken by a test')"]

    with pytest.raises(InternalError, match="broken by a test") as caught:
        run_selftest(load_level("pure"), trials=broken, only=("rlimits",))
    assert caught.value.code == "STO-S003"
