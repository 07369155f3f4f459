"""Every system call number, one by one, in both modes and at every level, in a real jail.

What each must do is asked of the filter's own bytes (`bpf.evaluate`); `test_filter_text`
holds those against the words. Numbers that are let through with zero arguments are left out:
what they may do is the levels' matter.
"""

import dataclasses
import platform

import msgspec
import pytest

from stoilo.core.levels import load_levels
from stoilo.core.types import RunLimits
from stoilo.policies.levels import load_level
from stoilo.sandbox.kernel import filters
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail
from tests.support.bpf import ARCHITECTURES, evaluate

HERE = next(a for a, m in ARCHITECTURES.items() if m == platform.machine())
LEVELS = [level.name for level in load_levels()]
LIMITS = RunLimits(cpu_s=5, wall_s=10, memory_bytes=64 << 20)
ALLOW, STOP, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000
LAST = 500
UNFILTERED = {335, 336} if platform.machine() == "x86_64" else set()
"""uretprobe and uprobe: Linux ≥ 6.14 (≥ 6.18) keeps them from seccomp, so that tracing does
not kill. Called from anywhere but the kernel's own trampoline they fail or end in SIGILL."""
ALL_CALLS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in {numbers}:
    result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
    print(number, ctypes.get_errno() if result == -1 else "REACHED")
"""
ONE_CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall({number}, 0, 0, 0, 0, 0, 0)
print("REACHED")
"""


NUMBERS = sorted(set(range(LAST)) - UNFILTERED)


def load_bare(name):
    """Return a level that preloads nothing: libraries make no difference here."""
    return msgspec.structs.replace(load_level(name), preload=())


def read_decisions(level, denied):
    """Return what the filter does with each number whose arguments are zero."""
    program = filters.build_filter(level.syscalls, threads=False, denied=denied)
    return {number: evaluate(program, HERE, number) for number in NUMBERS}


@pytest.mark.parametrize("number", sorted(UNFILTERED))
def test_call_that_the_kernel_does_not_filter_has_no_effect(number):
    with Jail(load_bare("pure"), PROBE_JOB, preload=("ctypes",)) as jail:
        source = ALL_CALLS.format(numbers=[number])
        report = jail.run(encode_probe(source, ("ctypes",)), LIMITS)
    assert b"REACHED" not in report.output
    assert report.syscall or "SIGILL" in report.detail or report.output


@pytest.mark.parametrize("name", LEVELS)
def test_every_denied_call_fails_in_errno_mode(name):
    level = load_bare(name)
    decisions = read_decisions(level, filters.Denied.ERRNO)
    expected = {n: a - REFUSE for n, a in decisions.items() if a != ALLOW}
    source = ALL_CALLS.format(numbers=list(expected))
    jail = Jail(level, PROBE_JOB, preload=("ctypes",), denied=filters.Denied.ERRNO)
    with jail:
        report = jail.run(encode_probe(source, ("ctypes",)), LIMITS)
    said = dict(line.split() for line in report.output.decode().splitlines())
    assert said == {str(n): str(error) for n, error in expected.items()}
    assert len(said) > 400


@pytest.mark.parametrize(
    "name",  # of the others, the test above and `test_filter_text` show the same filter
    [pytest.param(n, marks=[pytest.mark.slow] * (n != "pure")) for n in LEVELS],
)
def test_every_stopped_call_kills_and_is_named_in_kill_mode(name):
    level = load_bare(name)
    decisions = read_decisions(level, filters.Denied.KILL)
    stopped = [number for number, action in decisions.items() if action == STOP]
    wrong = {}
    with Jail(level, PROBE_JOB, preload=("ctypes",)) as jail:
        for number in stopped:
            source = ONE_CALL.format(number=number)
            report = jail.run(encode_probe(source, ("ctypes",)), LIMITS)
            named = filters.name_syscall(number)
            if (report.syscall, report.output) != (named, b""):
                wrong[named] = dataclasses.replace(report, layers=())
    assert wrong == {}
    assert len(stopped) > 350
