"""What the processes of a jail ask of Linux and Python does not wrap; OSError on failure.

Used before the filter closes; `ctypes` is loaded in the zygote, so that nothing is opened
later. The filter itself is the last of them: the supervisor builds the BPF program
(`stoilo.sandbox.kernel.filters`), the child loads its bytes with seccomp(2). Its default is a
*user notification*: the calling thread sleeps in the kernel, the zygote reads which call it
was and kills the child. The call never proceeds; when nobody listens the kernel answers
ENOSYS. A wrong architecture (i386, x32) kills the process at once.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
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


def kill_process(pidfd: int) -> None:
    """Send SIGKILL to exactly the process that `pidfd` is (pidfd_send_signal(2))."""
    raw_syscall(_PIDFD_SEND_SIGNAL, pidfd, SIGKILL, 0, 0)


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
