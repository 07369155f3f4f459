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
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from stoilo.sandbox.libc import raw_syscall

if TYPE_CHECKING:
    from pyseccomp import SyscallFilter

    from stoilo.core.levels import SyscallRules
    from stoilo.sandbox.zygote_filters import OwnCall

__all__ = [
    "Denied",
    "build_filter",
    "build_waiter_filter",
    "build_zygote_filter",
    "close_process",
    "is_available",
    "load_filter",
    "name_syscall",
    "read_notification",
]

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _GET_ACTION_AVAIL, _NEW_LISTENER = 1, 2, 8
_NOTIF_RECV = 0xC0502100  # _IOWR('!', 0, struct seccomp_notif)
_NOTIF = struct.Struct("=QIIiIQ6Q")
_ACTIONS = (0x80000000, 0x7FC00000, 0x00050000, 0x7FF00000)
"""KILL_PROCESS, USER_NOTIF, ERRNO, TRACE: what our filters answer."""

_PROBE_ERRNO = "EPERM"


class Denied(StrEnum):
    """What happens to a call that no rule lets through.

    ``KILL`` is what every task gets. ``ERRNO`` answers EPERM instead, so that a probe goes
    on to its next call; the jail refuses it for every job but the probe.
    """

    KILL = "kill"
    ERRNO = "errno"


def _answers_by_default(name: str, denied: Denied) -> bool:
    """Whether an errno is what the default action answers; libseccomp refuses such rules."""
    return denied is Denied.ERRNO and name == _PROBE_ERRNO


def _load_binding() -> Any:  # noqa: ANN401 - an untyped binding
    from stoilo.sandbox.libseccomp import load_binding  # noqa: PLC0415 - the supervisor's

    return load_binding()


def build_filter(
    rules: SyscallRules, *, threads: bool, denied: Denied = Denied.KILL
) -> bytes:
    """Return the BPF program of a level.

    Args:
        rules: the level's table (trusted).
        threads: whether clone(2) with thread flags is let through.
        denied: what a call gets that no rule lets through.

    Raises:
        OSError: libseccomp does not know a name or refuses a rule.
        KeyError: `rules` asks for a guard that does not exist.
    """
    from stoilo.sandbox.argument_filters import (  # noqa: PLC0415 - likewise
        ARGUMENT_FILTERS,
        Context,
    )

    bpf = _load_binding()
    polite = bpf.ERRNO(getattr(errno, _PROBE_ERRNO))
    table = bpf.SyscallFilter(bpf.NOTIFY if denied is Denied.KILL else polite)
    table.set_attr(bpf.Attr.ACT_BADARCH, bpf.KILL_PROCESS)
    for call in rules.allow:
        table.add_rule(bpf.ALLOW, call)
    for call in (*rules.guarded, "sendmsg"):
        ARGUMENT_FILTERS[call].add(Context(table, threads), call)
    for name, calls in rules.errno.items():
        for call in () if _answers_by_default(name, denied) else calls:
            table.add_rule(bpf.ERRNO(getattr(errno, name)), call)
    return _export(table)


def _export(table: SyscallFilter) -> bytes:
    import tempfile  # noqa: PLC0415 - likewise

    with tempfile.TemporaryFile() as file:
        table.export_bpf(file)
        file.seek(0)
        return file.read()


def build_zygote_filter(rules: SyscallRules, *, threads: bool) -> bytes:
    """Return the BPF program of a zygote whose runs have `rules`.

    What it denies gets the answer for a tracer: without one the call fails with ENOSYS, and
    it gives way to a run's own filter, whose answer stops and names the call.

    Args:
        rules: of the level (trusted).
        threads: whether runs of the level may have several.

    Raises:
        OSError: libseccomp does not know a name or refuses a rule.
    """
    from stoilo.sandbox.zygote_filters import find_own  # noqa: PLC0415 - likewise

    return _build_own(_load_binding().TRACE(0), find_own(rules), threads=threads)


def build_waiter_filter() -> bytes:
    """Return the BPF program of the process that only waits for the zygote."""
    from stoilo.sandbox.zygote_filters import WAITER_CALLS  # noqa: PLC0415 - likewise

    return _build_own(_load_binding().KILL_PROCESS, WAITER_CALLS, threads=False)


def _build_own(default: int, calls: Mapping[str, OwnCall], *, threads: bool) -> bytes:
    from stoilo.sandbox.argument_filters import Context  # noqa: PLC0415 - likewise
    from stoilo.sandbox.zygote_filters import add_own  # noqa: PLC0415 - likewise

    bpf = _load_binding()
    table = bpf.SyscallFilter(default)
    table.set_attr(bpf.Attr.ACT_BADARCH, bpf.KILL_PROCESS)
    add_own(Context(table, threads), calls)
    return _export(table)


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


def name_syscall(number: int) -> str:
    """Return the name of a call on this machine, or its number when unknown."""
    bpf = _load_binding()
    try:
        name: bytes = bpf.resolve_syscall(bpf.system_arch(), number)
    except (OSError, ValueError):
        return f"number {number}"
    return name.decode("ascii")
