"""What the programs decide agrees with the rules and with the kernel."""

import errno
import os
import platform
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.policies.levels import load_level
from stoilo.sandbox.kernel import filters
from tests.support import bpf
from tests.support.bpf import ARCHITECTURES, describe_action, evaluate

HERE = next(a for a, m in ARCHITECTURES.items() if m == platform.machine())
OTHER = 0x40000003  # AUDIT_ARCH_I386
ALLOW, STOP, KILL = 0x7FFF0000, 0x7FC00000, 0x80000000
PROGRAM = filters.build_filter(load_level("pure").syscalls, threads=False)
THREADED = filters.build_filter(load_level("pure").syscalls, threads=True)
NUMBERS = {filters.name_syscall(number): number for number in range(480)}
THREAD = 0x3D0F00


def decide(name, *arguments, program=PROGRAM):
    return describe_action(evaluate(program, HERE, NUMBERS[name], arguments))


@pytest.mark.parametrize(
    ("call", "arguments", "action"),
    [
        ("brk", (), "allow"),
        ("openat", (), "fail with EACCES"),
        ("clone3", (), "fail with ENOSYS"),
        ("socket", (), "stop"),
        ("mmap", (0, 4096, 3), "allow"),
        ("mmap", (0, 4096, 7), "fail with EACCES"),
        ("mprotect", (0, 4096, 5), "fail with EACCES"),
        ("read", (0,), "allow"),
        ("read", (1,), "stop"),
        ("read", (1 << 32,), "stop"),
        ("write", (4,), "allow"),
        ("write", (3,), "stop"),
        ("close", (6,), "allow"),
        ("close", (7,), "fail with EBADF"),
        ("madvise", (0, 0, 4), "allow"),
        ("madvise", (0, 0, 12), "stop"),
        ("futex", (0, 128), "allow"),
        ("futex", (0, 9 | 128 | 256), "allow"),
        ("futex", (0, 0), "stop"),
        ("futex", (0, 1), "stop"),
        ("futex", (0, 1 | 256), "stop"),
        ("futex", (0, 1 | 128 | 512), "stop"),
        ("futex", (0, 6), "stop"),
        ("futex", (0, 13 | 128), "stop"),
        ("clock_gettime", (11,), "allow"),
        ("clock_gettime", (12,), "fail with EINVAL"),
        ("clock_gettime", ((1 << 64) - 2,), "fail with EINVAL"),
        ("sched_getaffinity", (0,), "allow"),
        ("sched_getaffinity", (1,), "fail with ESRCH"),
        ("clone", (17,), "stop"),
        ("clone", (THREAD,), "fail with EAGAIN"),
        ("clone", (THREAD | 1 << 32,), "stop"),
        ("sendmsg", (5,), "allow"),
        ("sendmsg", (4,), "stop"),
    ],
)
def test_arguments_decide_what_becomes_of_a_call(call, arguments, action):
    assert decide(call, *arguments).startswith(action)


def test_threads_pass_where_the_run_may_have_them_and_processes_never():
    assert decide("clone", THREAD, program=THREADED) == "allow"
    assert decide("clone", 17, program=THREADED).startswith("stop")
    assert decide("fork", program=THREADED).startswith("stop")


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_call_of_another_architecture_kills_whatever_it_is(number, arguments):
    assert evaluate(PROGRAM, OTHER, number, arguments) == KILL
    assert evaluate(PROGRAM, HERE, number | 1 << 30, arguments) in {KILL, STOP}


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_threads_are_the_only_difference_between_the_two_programs(number, arguments):
    one = evaluate(PROGRAM, HERE, number, arguments)
    several = evaluate(THREADED, HERE, number, arguments)
    assert one == several or number in {NUMBERS["clone"], NUMBERS["futex"]}


@pytest.mark.parametrize("clock", [0, 256])
def test_thread_may_wait_on_a_shared_word_but_wake_nobody_there(clock):
    wait = {decide("futex", 0, op | clock, program=THREADED) for op in (0, 9)}
    assert wait == {"allow"}
    for op in (1, 3, 4, 5, 10):
        assert decide("futex", 0, op | clock, program=THREADED).startswith("stop")


@given(st.integers(0, 600), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_errno_mode_lets_nothing_more_through(number, arguments):
    rules = load_level("pure").syscalls
    polite = filters.build_filter(rules, threads=False, denied=filters.Denied.ERRNO)
    one = evaluate(PROGRAM, HERE, number, arguments)
    other = evaluate(polite, HERE, number, arguments)
    refused = 0x00050000 | errno.EPERM
    assert other == (refused if one == STOP else one)


@pytest.mark.parametrize("program", [b"1", struct.pack("=HBBI", 0x16, 0, 0, 0)])
def test_what_is_no_program_of_ours_is_refused(program):
    with pytest.raises((ValueError, struct.error)):
        bpf.parse_program(program)


def test_program_without_an_answer_is_refused():
    with pytest.raises(ValueError, match="past its end"):
        evaluate(struct.pack("=HBBI", 0x20, 0, 0, 0), HERE, os.EX_OK)
