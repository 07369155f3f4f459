"""What the processes of a jail ask of Linux and Python does not wrap; OSError on failure.

Used before the filter closes; `ctypes` is loaded in the zygote, so that nothing is opened
later. The supervisor, which holds a child by its pidfd, builds the filter's BPF program
(`stoilo.sandbox.kernel.filters`); the child loads its bytes with seccomp(2). Its default is a
*user notification*: the calling thread sleeps in the kernel, the zygote reads which call it
was and kills the child. The call never proceeds; when nobody listens the kernel answers
ENOSYS. A wrong architecture (i386, x32) kills the process at once.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
import time
from collections.abc import Callable
from enum import IntEnum

SIGKILL = 9
"""The number, because the library's `signal` makes enums: 0.5 ms of every cold start."""

PR_SET_PDEATHSIG = 1
_PIDFD_SEND_SIGNAL = 424  # on every architecture
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


def check_call(result: int, what: str) -> int:
    """Return `result`, or raise OSError with the call's errno when it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, *arguments: int) -> int:
    """Ask or change something about the process; missing arguments are zero."""
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    return check_call(int(_LIBC.prctl(option, *words)), "prctl")


def raw_syscall(number: int, *arguments: int | ctypes.c_void_p) -> int:
    """Call a system call by number; integers travel as longs."""
    words = [
        ctypes.c_long(word) if isinstance(word, int) else word for word in arguments
    ]
    return check_call(int(_LIBC.syscall(ctypes.c_long(number), *words)), "syscall")


def kill_with_parent() -> None:
    """Have this process killed when the thread that started it ends."""
    prctl(PR_SET_PDEATHSIG, SIGKILL)


def signal_process(pidfd: int, number: int) -> None:
    """Send a signal to exactly the process that `pidfd` is (pidfd_send_signal(2))."""
    raw_syscall(_PIDFD_SEND_SIGNAL, pidfd, number, 0, 0)


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` name (CLONE_NEW…)."""
    check_call(int(_LIBC.unshare(flags)), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """Mount a file system, or change how an existing mount propagates."""
    words = (text.encode() or None for text in (source, target, kind))
    result = _LIBC.mount(*words, ctypes.c_ulong(flags), options.encode() or None)
    check_call(int(result), "mount")


def set_capabilities(mask: int) -> None:
    """Make `mask` the effective and permitted set of this process, nothing inheritable.

    The layout is _LINUX_CAPABILITY_VERSION_3 of linux/capability.h.
    """
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    check_call(int(_LIBC.capset(header, data)), "capset")


def clear_personality() -> bool:
    """Make the execution domain that of Linux without any quirk, from the next exec on.

    What a caller may have had set would switch address randomisation off, or (where the
    kernel does not undo it at exec) make all readable memory executable.
    """
    return check_call(int(_LIBC.personality(ctypes.c_ulong(0))), "personality") != 0


def make_shared_memory(size: int) -> int:
    """Return the id of a System V segment of `size` bytes that everybody may attach."""
    return check_call(int(_LIBC.shmget(0, ctypes.c_size_t(size), 0o1666)), "shmget")


def remove_shared_memory(segment: int) -> None:
    """Remove a System V segment."""
    check_call(int(_LIBC.shmctl(segment, 0, None)), "shmctl")


PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS = 38, 39


def answers_prctl(option: int) -> bool:
    """Whether the kernel knows a prctl that only reads."""
    try:
        prctl(option)
    except OSError:
        return False
    return True


_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _GET_ACTION_AVAIL, _NEW_LISTENER = 1, 2, 8
_NOTIF_RECV = 0xC0502100  # _IOWR('!', 0, struct seccomp_notif)
_NOTIF = struct.Struct("=QIIiIQ6Q")
_ACTIONS = (0x80000000, 0x7FC00000, 0x00050000, 0x7FF00000)
"""KILL_PROCESS, USER_NOTIF, ERRNO, TRACE: what our filters answer."""


class FD(IntEnum):
    """The child's descriptors, the only ones that it ever has."""

    NULL = 0
    OUTPUT = 1
    ERRORS = 2
    REQUEST = 3
    RESULT = 4
    TRANSFER = 5
    LISTENER = 6


def _seccomp(operation: int, flags: int, pointer: ctypes.c_void_p) -> int:
    number = _SECCOMP.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "seccomp: unknown architecture")
    return raw_syscall(number, operation, flags, pointer)


def is_available() -> bool:
    """Whether this kernel has every filter action that the jail needs."""
    try:
        for action in _ACTIONS:
            word = ctypes.c_uint32(action)
            _seccomp(
                _GET_ACTION_AVAIL,
                0,
                ctypes.cast(ctypes.pointer(word), ctypes.c_void_p),
            )
    except OSError:
        return False
    return True


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def load_filter(program: bytes) -> int:
    """Close the calling process into `program`; returns the listener's descriptor.

    Raises:
        OSError: the kernel refused; EBUSY when an outer listener exists.
    """
    return _load(program, _NEW_LISTENER)


def close_process(program: bytes) -> None:
    """Close the calling process and what it forks into `program`, without a listener."""
    _load(program, 0)


def _load(program: bytes, flags: int) -> int:
    fprog = _Program(len(program) // 8, program)
    pointer = ctypes.cast(ctypes.pointer(fprog), ctypes.c_void_p)
    return _seccomp(_SET_MODE_FILTER, flags, pointer)


def read_notification(listener: int) -> int | None:
    """Return the number of the call that waits at `listener`, None when none does."""
    buffer = bytearray(_NOTIF.size)
    try:
        fcntl.ioctl(listener, _NOTIF_RECV, buffer)
    except OSError:
        return None
    return int(_NOTIF.unpack(buffer)[3])


# Landlock with nothing allowed: no file, no TCP, no signal out of the domain ----------
#
# A ruleset without rules denies every right that it handles, so it handles every right that
# the running kernel's ABI knows. Source: linux/landlock.h and the kernel's userspace-api
# page. It complements seccomp; stat(2), chmod(2) and UDP stay outside its reach.


_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # on every architecture
_CREATE_RULESET_VERSION = 1

# ABI → how many file-system rights exist (bits from 0).
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NET_RIGHTS = 0b11  # bind and connect TCP, ABI ≥ 4
_SCOPES = 0b11  # abstract unix sockets and signals, ABI ≥ 6
_NET_ABI, _SCOPE_ABI = 4, 6


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def detect_abi() -> int:
    """Return the kernel's Landlock ABI version, 0 when there is none."""
    try:
        return raw_syscall(
            _CREATE_RULESET, ctypes.c_void_p(None), 0, _CREATE_RULESET_VERSION
        )
    except OSError:
        return 0


def create_empty_ruleset(abi: int, call: Callable[..., int] = raw_syscall) -> int:
    """Return a descriptor of a ruleset that handles all that `abi` can and allows none.

    Raises:
        OSError: the kernel has no Landlock or it is switched off.
    """
    attr = _RulesetAttr(handled_access_fs=(1 << _FS_RIGHTS.get(abi, 16)) - 1)
    size = 8
    if abi >= _NET_ABI:
        attr.handled_access_net, size = _NET_RIGHTS, 16
    if abi >= _SCOPE_ABI:
        attr.scoped, size = _SCOPES, 24
    pointer = ctypes.cast(ctypes.pointer(attr), ctypes.c_void_p)
    return call(_CREATE_RULESET, pointer, size, 0)


def restrict_self(ruleset: int) -> None:
    """Close the calling thread into `ruleset`; needs no_new_privs; cannot be undone."""
    raw_syscall(_RESTRICT_SELF, ruleset, 0)


# A child as its supervisor sees it, by its pidfd ---------------------------------------

_SIGCONT, _SIGSTOP = 18, 19
_INFO_BYTES = 1 << 16


class RunningChild:
    """The jailed child by its pidfd, which this object owns; signals hit no other.

    Attributes:
        pid: as this process sees it, 0 where it cannot be found out.
    """

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self.pid = _read_pid(pidfd)
        self._zygote = _read_parent(self.pid)
        self._cpu_s = self._zygote_cpu_s = 0.0

    def stop(self) -> None:
        """Let every thread of it stand still."""
        self._signal(_SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(_SIGCONT)

    def cpu_s(self) -> float:
        """Return its processor time, s; the last known once it has ended."""
        self._cpu_s = _read_cpu_s(self.pid, self._cpu_s)
        return self._cpu_s

    def zygote_cpu_s(self) -> float:
        """Return the processor time of the zygote that started it, s."""
        self._zygote_cpu_s = _read_cpu_s(self._zygote, self._zygote_cpu_s)
        return self._zygote_cpu_s

    def close(self) -> None:
        """Let go of it; it may run on. Its times stay what they are now."""
        self.cpu_s()
        self.zygote_cpu_s()
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._pidfd, self.pid, self._zygote = -1, 0, 0

    def _signal(self, number: int) -> None:
        try:
            if self._pidfd >= 0:
                signal_process(self._pidfd, number)
        except ProcessLookupError:
            pass  # it has ended


def _read_cpu_s(pid: int, before: float) -> float:
    """Return a process's time, s; `before` when it has ended or is not known.

    Its clock is CPUCLOCK_SCHED of linux/posix-timers.h.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2) if pid else before
    except OSError:
        return before


def _read_parent(pid: int) -> int:
    words = read_proc(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def _read_pid(pidfd: int) -> int:
    """Return the pid behind `pidfd` in this process's namespace, 0 if it is not told."""
    match = re.search(
        rb"^Pid:\s*([0-9]{1,10})$",
        read_proc(f"/proc/self/fdinfo/{pidfd}"),
        re.MULTILINE,
    )
    return int(match[1]) if match else 0


def read_proc(path: str) -> bytes:
    """Return what a small file of proc(5) says; nothing where it, or its process, is gone.

    A process that ends after the opening lets the read fail with ESRCH.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _INFO_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return b""
