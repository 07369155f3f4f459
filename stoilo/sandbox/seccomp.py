"""The system call filter: default-deny, built from a level, the denied call named.

The supervisor builds the BPF program with libseccomp (once for each level) and hands the
bytes to the zygote; the child loads them with seccomp(2). The default action is a *user
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
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.sandbox.channel import FD
from stoilo.sandbox.libc import raw_syscall

if TYPE_CHECKING:
    from pyseccomp import SyscallFilter

    from stoilo.core.levels import SyscallRules

__all__ = [
    "GUARDS",
    "build_filter",
    "is_available",
    "load_filter",
    "name_syscall",
    "read_notification",
]

THREAD_FLAGS = 0x3D0F00  # what glibc's pthread_create passes to clone(2)
_PROT_EXEC = 0x4
_MADVICE = (4, 8, 14, 15, 25)  # DONTNEED FREE HUGEPAGE NOHUGEPAGE COLLAPSE
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _GET_ACTION_AVAIL, _NEW_LISTENER = 1, 2, 8
_NOTIF_RECV = 0xC0502100  # _IOWR('!', 0, struct seccomp_notif)
_NOTIF = struct.Struct("=QIIiIQ6Q")
_ACTIONS = (0x80000000, 0x7FC00000, 0x00050000)  # KILL_PROCESS, USER_NOTIF, ERRNO


@dataclass(frozen=True, slots=True)
class GuardContext:
    """What an argument filter needs to know: the filter so far, and whether threads."""

    rules: SyscallFilter
    threads: bool


def _allow_equal(
    context: GuardContext, call: str, argument: int, values: tuple[int, ...]
) -> None:
    """Let `call` through when one argument has one of `values`."""
    import pyseccomp as bpf  # noqa: PLC0415 - libseccomp is needed by the supervisor only

    for value in values:
        context.rules.add_rule(bpf.ALLOW, call, bpf.Arg(argument, bpf.EQ, value))


def _guard_protection(context: GuardContext, call: str) -> None:
    """Allow memory that is not executable; EACCES otherwise (W^X for JITs)."""
    import pyseccomp as bpf  # noqa: PLC0415

    for wanted, action in ((0, bpf.ALLOW), (_PROT_EXEC, bpf.ERRNO(errno.EACCES))):
        context.rules.add_rule(
            action, call, bpf.Arg(2, bpf.MASKED_EQ, _PROT_EXEC, wanted)
        )


def _guard_madvise(context: GuardContext, call: str) -> None:
    _allow_equal(context, call, 2, _MADVICE)


def _guard_read(context: GuardContext, call: str) -> None:
    _allow_equal(context, call, 0, (FD.NULL, FD.REQUEST))


def _guard_write(context: GuardContext, call: str) -> None:
    _allow_equal(context, call, 0, (FD.OUTPUT, FD.ERRORS, FD.RESULT))


def _guard_close(context: GuardContext, call: str) -> None:
    """Let the child's own go; EBADF for the rest, which finalizers may still try."""
    import pyseccomp as bpf  # noqa: PLC0415

    _allow_equal(context, call, 0, tuple(FD))
    beyond = bpf.Arg(0, bpf.GT, max(FD))
    context.rules.add_rule(bpf.ERRNO(errno.EBADF), call, beyond)


def _guard_sendmsg(context: GuardContext, call: str) -> None:
    """Only to the descriptor that hands over the listener, closed right afterwards."""
    _allow_equal(context, call, 0, (FD.TRANSFER,))


def _guard_clone(context: GuardContext, call: str) -> None:
    """Let threads through where the level has them; EAGAIN where it has not."""
    import pyseccomp as bpf  # noqa: PLC0415

    action = bpf.ALLOW if context.threads else bpf.ERRNO(errno.EAGAIN)
    context.rules.add_rule(action, call, bpf.Arg(0, bpf.EQ, THREAD_FLAGS))


GUARDS: dict[str, Callable[[GuardContext, str], None]] = {
    "mmap": _guard_protection,
    "mprotect": _guard_protection,
    "madvise": _guard_madvise,
    "read": _guard_read,
    "write": _guard_write,
    "close": _guard_close,
    "sendmsg": _guard_sendmsg,
    "clone": _guard_clone,
}
"""Argument filters by system call; what they do not let through is killed and named."""


def build_filter(rules: SyscallRules, *, threads: bool) -> bytes:
    """Return the BPF program of a level.

    Args:
        rules: the level's table (trusted).
        threads: whether clone(2) with thread flags is let through.

    Raises:
        OSError: libseccomp does not know a name or refuses a rule.
        KeyError: `rules` asks for a guard that does not exist.
    """
    import tempfile  # noqa: PLC0415 - likewise

    import pyseccomp as bpf  # noqa: PLC0415

    table = bpf.SyscallFilter(bpf.NOTIFY)
    table.set_attr(bpf.Attr.ACT_BADARCH, bpf.KILL_PROCESS)
    for call in rules.allow:
        table.add_rule(bpf.ALLOW, call)
    for call in (*rules.guarded, "sendmsg"):
        GUARDS[call](GuardContext(table, threads), call)
    for name, calls in rules.errno.items():
        for call in calls:
            table.add_rule(bpf.ERRNO(getattr(errno, name)), call)
    with tempfile.TemporaryFile() as file:
        table.export_bpf(file)
        file.seek(0)
        return file.read()


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
    fprog = _Program(len(program) // 8, program)
    pointer = ctypes.cast(ctypes.pointer(fprog), ctypes.c_void_p)
    return _seccomp(_SET_MODE_FILTER, _NEW_LISTENER, pointer)


def read_notification(listener: int) -> int | None:
    """Return the number of the call that waits at `listener`, None when none does."""
    buffer = bytearray(_NOTIF.size)
    try:
        fcntl.ioctl(listener, _NOTIF_RECV, buffer)
    except OSError:
        return None
    return int(_NOTIF.unpack(buffer)[3])


def name_syscall(number: int) -> str:
    """Return the name of a call on this machine, or its number when unknown."""
    import pyseccomp as bpf  # noqa: PLC0415

    try:
        name: bytes = bpf.resolve_syscall(bpf.system_arch(), number)
    except (OSError, ValueError):
        return f"number {number}"
    return name.decode("ascii")
