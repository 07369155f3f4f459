"""The second wall: a zygote that was taken over finds little to call, and nobody to be."""

import dataclasses
import os
import platform
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError
from stoilo.core.levels import load_levels
from stoilo.policies.levels import load_level
from stoilo.sandbox.kernel import filters
from stoilo.sandbox.kernel.filters import find_own, load_own_calls
from stoilo.sandbox.kernel.mechanisms import ZYGOTE_UID
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.run import encode_probe, narrow_level
from stoilo.sandbox.process.supervisor import Jail, zygote_command
from tests.support.bpf import ARCHITECTURES, evaluate

HERE = next(a for a, m in ARCHITECTURES.items() if m == platform.machine())
ALLOW, TRACE, KILL = 0x7FFF0000, 0x7FF00000, 0x80000000
NUMBERS = {filters.name_syscall(number): number for number in range(480)}
LEVELS = [level.name for level in load_levels()]
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
FORK = 0x1200011


def build(name, *, threads):
    return filters.build_zygote_filter(load_level(name).syscalls, threads=threads)


ZYGOTES = {name: build(name, threads=name != "pure") for name in LEVELS}
RUNS = {
    (name, threads): filters.build_filter(load_level(name).syscalls, threads=threads)
    for name in LEVELS
    for threads in ((False,) if name == "pure" else (False, True))
}


def stricter(*actions):
    """Return the action that the kernel takes of several filters' (seccomp(2))."""
    return min(actions, key=lambda one: one - (1 << 32) if one >> 31 else one)


@pytest.mark.parametrize("run", RUNS, ids=str)
@given(
    number=st.integers(0, 600) | st.just(0xFFFFFFFF),
    arguments=st.lists(
        st.integers(0, 512) | st.integers(0, 2**64 - 1) | st.just(0x3D0F00), max_size=6
    ),
)
def test_every_call_of_a_run_gets_the_answer_of_its_own_filter(run, number, arguments):
    """What is denied stays named; what is open stays open."""
    own = evaluate(RUNS[run], HERE, number, arguments)
    inherited = evaluate(ZYGOTES[run[0]], HERE, number, arguments)
    assert stricter(own, inherited) == own


@pytest.mark.parametrize("level", LEVELS)
def test_call_that_neither_zygote_nor_run_needs_is_denied(level):
    known = find_own(load_level(level).syscalls)
    for call, number in NUMBERS.items():
        if call not in known:
            assert evaluate(ZYGOTES[level], HERE, number) == TRACE, call


@pytest.mark.parametrize(
    ("call", "arguments", "action"),
    [
        ("clone", (FORK,), ALLOW),
        ("clone", (FORK | 0x10000000,), TRACE),  # with a user namespace
        ("clone", (0x3D0F00,), TRACE),  # no level pure run has threads
        ("kill", (5, 9), ALLOW),
        ("kill", (5, 15), TRACE),
        ("pidfd_send_signal", (5, 19), TRACE),
        ("prctl", (1, 9), ALLOW),
        ("prctl", (22, 1), TRACE),
        ("prlimit64", (0, 7), ALLOW),
        ("prlimit64", (1, 7), TRACE),
        ("setgroups", (0,), ALLOW),
        ("setgroups", (1,), TRACE),
        ("setresuid", (61184, 61184, 61184), ALLOW),
        ("setresuid", (65519, 65519, 65519), ALLOW),
        ("setresuid", (65534, 65534, 65534), ALLOW),
        ("setresuid", (0, 0, 0), TRACE),
        ("setresuid", (61184, 0, 61184), TRACE),
        ("setresuid", (1000, 1000, 1000), TRACE),
        ("setresuid", (0xFFFFFFFF, 0, 0xFFFFFFFF), TRACE),
        ("setresgid", (0, 0, 0), TRACE),
        ("seccomp", (1, 8), ALLOW),
        ("seccomp", (1, 0), TRACE),
        ("socketpair", (1, 5), ALLOW),
        ("socketpair", (16, 3), TRACE),
        ("newfstatat", (3, 0, 0, 0x1000), ALLOW),
        ("newfstatat", (3, 0, 0, 0), TRACE),
        ("ioctl", (3, 0xC0502100), ALLOW),
        ("ioctl", (3, 0x5412), TRACE),
    ],
)
def test_arguments_of_a_zygotes_own_calls_are_checked(call, arguments, action):
    assert evaluate(ZYGOTES["pure"], HERE, NUMBERS[call], arguments) == action


def test_level_that_was_narrowed_to_one_thread_shares_no_filter_with_the_whole():
    whole = load_level("numeric")
    narrow = narrow_level(whole, "def f(d): return 1", threads=1)
    limits = dataclasses.replace(whole.default_limits(), threads=2)
    thread = "import threading\nt = threading.Thread(target=print, args=(1,))\n"
    request = encode_probe(thread + "t.start(); t.join()", ("threading",))
    answers = []
    for level in (narrow, whole):
        bare = msgspec.structs.replace(level, preload=())
        with Jail(bare, PROBE_JOB, preload=("threading",)) as jail:
            answers.append(jail.run(request, limits).output)
    assert answers == [b"", b"1\n"]


def test_process_that_waits_may_only_wait():
    program = filters.build_waiter_filter()
    for call, number in NUMBERS.items():
        open_ = evaluate(program, HERE, number) != KILL
        assert open_ == (call in load_own_calls().waiter) or call == "futex", call


# -------------------------------------------------------- a zygote that was taken over

ATTEMPTS = [
    ("openat", (-100, b"/", 0)),
    ("socket", (2, 1, 0)),
    ("execve", (b"/", 0, 0)),
    ("ptrace", (0x4206, 0, 0, 0)),
    ("process_vm_writev", (1, 0, 0, 0, 0, 0)),
    ("unshare", (0x20000,)),
    ("setns", (0, 0)),
    ("mount", (0, 0, 0, 0, 0)),
    ("setresuid", (0, 0, 0)),
    ("setgroups", (1, 0)),
    ("prlimit64", (1, 7, 0, 0)),
    ("kill", (1, 15)),
    ("prctl", (8, 1, 0, 0, 0)),
    ("memfd_create", (b"x", 0)),
    ("bpf", (0, 0, 0)),
    ("keyctl", (0, 0, 0)),
    ("io_uring_setup", (1, 0)),
    ("userfaultfd", (0,)),
    ("add_key", (0, 0, 0, 0, 0)),
    ("setuid", (0,)),
]
TAKEN_OVER = """
import ctypes, errno
from stoilo.sandbox.process import channel, zygote
libc = ctypes.CDLL(None, use_errno=True)
def attempt(number, arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *(ctypes.c_char_p(a) if type(a) is bytes else a for a in arguments))
    return ctypes.get_errno() != errno.ENOSYS
def tell(layers):
    said = (f"{name}:{attempt(number, a)}" for name, number, a in ATTEMPTS)
    return channel.Ready(layers=(*layers, *said))
zygote.Ready = lambda layers=(), **rest: tell(layers) if layers else channel.Ready(**rest)
"""
WITHOUT_WALL = """
from stoilo.sandbox.kernel import calls
calls.close_process = lambda program: None
"""


def open_to_a_zygote(level, first):
    """Return the calls that get through to the kernel in a zygote that obeys others."""
    attempts = [(name, NUMBERS[name], arguments) for name, arguments in ATTEMPTS]
    words = f"ATTEMPTS = {attempts!r}\n{first}{TAKEN_OVER}from stoilo.sandbox"
    *interpreter, entry = zygote_command()
    entry = entry.replace("from stoilo.sandbox", words, 1)
    with Jail(level, PROBE_JOB, command=lambda: [*interpreter, entry]) as jail:
        said = [layer.partition(":") for layer in jail.layers if ":" in layer]
        alive = jail.run(encode_probe("print(1)"), level.default_limits()).output
    assert (len(said), alive) == (len(ATTEMPTS), b"1\n")
    return {name for name, _, through in said if through == "True"}


def test_zygote_that_was_taken_over_reaches_nothing(pure):
    assert open_to_a_zygote(pure, "") == set()


def test_control_zygote_without_its_filter_reaches_all(pure):
    assert open_to_a_zygote(pure, WITHOUT_WALL) == {name for name, _ in ATTEMPTS}


def read_status(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {k: v.split() for k, _, v in (line.partition(":") for line in lines)}


def processes_of(jail):
    """Return the statuses of the process that waits, if any, and of the zygote."""
    first = jail.zygote_pid
    below = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [read_status(pid) for pid in (first, *below)]


@ROOT_ONLY
def test_zygote_and_who_waits_for_it_are_nobody_with_few_capabilities(pure):
    with Jail(pure, PROBE_JOB) as jail:
        assert jail.layers  # the zygote is ready; who waits closes itself meanwhile
        end = time.monotonic() + 10.0
        while processes_of(jail)[0]["Seccomp"] != ["2"] and time.monotonic() < end:
            time.sleep(0.01)
        *waiting, zygote = processes_of(jail)
    for status in (*waiting, zygote):
        assert set(status["Uid"] + status["Gid"]) == {str(ZYGOTE_UID)}
        assert (status["Groups"], status["NoNewPrivs"]) == ([], ["1"])
        assert (status["Seccomp"], status["CapBnd"]) == (["2"], ["0" * 16])
    assert zygote["CapEff"] == zygote["CapPrm"] == ["00000000000000e0"]
    assert all(set(one["CapPrm"][0]) == {"0"} for one in waiting)


ROOT_STAYS = """
from stoilo.sandbox.kernel import mechanisms
mechanisms.can_leave_root = lambda: False
"""


@ROOT_ONLY
def test_zygote_that_has_no_user_to_become_still_works(pure):
    """As in a user namespace that maps root and nobody; and the control of the one above."""
    *interpreter, entry = zygote_command()
    entry = entry.replace("from stoilo.sandbox", ROOT_STAYS + "from stoilo.sandbox", 1)
    with Jail(pure, PROBE_JOB, command=lambda: [*interpreter, entry]) as jail:
        zygote = processes_of(jail)[-1]
        report = jail.run(encode_probe("print(2)"), pure.default_limits())
    assert (zygote["Uid"][0], report.output) == ("0", b"2\n")


FAILING = """
from stoilo.sandbox.kernel import calls
def fail(program):
    raise OSError(1, "switched off by a test")
calls.close_process = fail
"""


def test_zygote_that_cannot_close_itself_serves_nobody(pure):
    source = FAILING + "from stoilo.sandbox.process.zygote import main\nmain()"
    command = [sys.executable, "-s", "-P", "-c", source]
    with pytest.raises(InternalError, match="STO-S003"):
        Jail(pure, PROBE_JOB, command=lambda: command)
