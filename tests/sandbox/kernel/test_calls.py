"""The filter: built from data, names what it stops, never lets it proceed."""

import ctypes
import errno
import mmap
import os
import platform
import select
import signal
import socket

import msgspec
import pytest

from stoilo.core.levels import SyscallRules
from stoilo.sandbox.kernel import calls, filters

LIBC = ctypes.CDLL(None, use_errno=True)
SYNC = 162  # sync(2): harmless, in no level


def spawn_filtered(program, work):
    """Fork a child that loads `program` and runs `work`; returns pid and listener."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        os.dup2(theirs.fileno(), 5)
        os.closerange(6, 4096)
        calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
        transfer = socket.socket(fileno=5)
        listener = calls.load_filter(program)
        socket.send_fds(transfer, [b"+"], [listener])
        os.close(listener)
        transfer.close()
        os._exit(work())
    theirs.close()
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    return pid, descriptors[0]


def call_sync():
    """Return 0 when sync(2) proceeded, its errno otherwise."""
    return ctypes.get_errno() if LIBC.syscall(SYNC) < 0 else 0


@pytest.fixture(scope="module")
def program(pure):
    return filters.build_filter(pure.syscalls, threads=False)


def test_control_call_outside_the_filter_proceeds():
    assert call_sync() == 0


def test_denied_call_waits_and_is_named(program):
    pid, listener = spawn_filtered(program, call_sync)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    assert poll.poll(5000)
    number = calls.read_notification(listener)
    assert (number, filters.name_syscall(number)) == (SYNC, "sync")
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)  # still asleep in the kernel
    os.kill(pid, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    os.close(listener)


def test_denied_call_without_a_listener_never_proceeds(program):
    pid, listener = spawn_filtered(program, call_sync)
    os.close(listener)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == errno.ENOSYS


def test_notification_of_a_dead_child_is_none(program):
    pid, listener = spawn_filtered(program, lambda: 0)
    os.waitpid(pid, 0)
    assert calls.read_notification(listener) is None
    os.close(listener)


def test_call_allowed_by_the_table_proceeds(pure):
    wider = msgspec.structs.replace(pure.syscalls, allow=(*pure.syscalls.allow, "sync"))
    program = filters.build_filter(wider, threads=False)
    pid, listener = spawn_filtered(program, call_sync)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(listener)


@pytest.mark.parametrize("name", ["EACCES", "EPERM", "ENOSYS"])
def test_call_in_the_errno_table_fails_with_it(pure, name):
    table = {**pure.syscalls.errno, name: (*pure.syscalls.errno[name], "sync")}
    rules = msgspec.structs.replace(pure.syscalls, errno=table)
    program = filters.build_filter(rules, threads=False)
    pid, listener = spawn_filtered(program, call_sync)
    exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert exit_code == getattr(errno, name)
    os.close(listener)


def test_table_with_an_unknown_call_is_refused():
    with pytest.raises(OSError, match="nvalid"):
        filters.build_filter(SyscallRules(("no_such_call",), (), {}), threads=False)


def test_table_with_an_unknown_guard_is_refused():
    with pytest.raises(KeyError):
        filters.build_filter(SyscallRules((), ("openat",), {}), threads=False)


def test_shipped_levels_allow_no_file_socket_or_process(pure, numeric):
    forbidden = {"open", "openat", "socket", "connect", "execve", "fork", "vfork"}
    forbidden |= {"ptrace", "kill", "sendto", "sendmsg", "ioctl", "prctl", "seccomp"}
    for level in (pure, numeric):
        assert not forbidden & {*level.syscalls.allow, *level.syscalls.guarded}


def test_unknown_number_is_shown_as_a_number():
    assert filters.name_syscall(4095) == "number 4095"


def test_this_kernel_has_the_actions():
    assert calls.is_available()


ENTER_BY_INT_80 = bytes.fromhex("53 b814000000 cd80 5b c3")  # eax = 20, getpid of i386


def make_i386_call():
    """Return a function that enters the kernel by the 32-bit table."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    page = mmap.mmap(-1, 4096, prot=protection)
    page.write(ENTER_BY_INT_80)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    enter = ctypes.CFUNCTYPE(ctypes.c_int)(address)
    enter.page = page  # its code goes when the page goes
    return enter


@pytest.mark.skipif(platform.machine() != "x86_64", reason="another machine's code")
def test_32_bit_entry_kills_even_where_the_code_is_already_there(program):
    call = make_i386_call()
    if call() != os.getpid():
        pytest.skip("this kernel has no 32-bit table")
    pid, listener = spawn_filtered(program, call)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGSYS
    os.close(listener)
