"""The system call filter, as a process of the jail loads it: default-deny, calls named.

The supervisor builds the BPF program (`stoilo.sandbox.kernel.building`) and hands the bytes
to the zygote; the child loads them with seccomp(2). The default action is a *user
notification*: the calling thread sleeps in the kernel, the zygote reads which call it was
and kills the child. The call never proceeds; when nobody listens the kernel answers
ENOSYS. A wrong architecture (i386, x32) kills the process at once.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from enum import IntEnum

from stoilo.sandbox.kernel.libc import raw_syscall

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
    """Close the calling process and what it forks into `program`, without a listener.

    Raises:
        OSError: the kernel refused.
    """
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
