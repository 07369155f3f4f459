"""The few C library calls that Python does not wrap, each raising OSError on failure.

Used by the zygote and the jailed child before the filter closes; `ctypes` is loaded in the
zygote, so nothing is opened later.
"""

from __future__ import annotations

import ctypes
import os

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

    Returns:
        Whether there was anything to clear.
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
