"""Calls that a level lets through by argument only: the conditions, in rules and in words.

Rules compare whole 64-bit registers; what no rule of a call covers gets the filter's default
and ends the run. libseccomp is imported by the functions, for the supervisor alone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from stoilo.sandbox.channel import FD

if TYPE_CHECKING:
    from pyseccomp import SyscallFilter

__all__ = [
    "ARGUMENT_FILTERS",
    "THREAD_FLAGS",
    "ArgumentFilter",
    "Context",
    "allow_equal",
]

THREAD_FLAGS = 0x3D0F00  # what glibc's pthread_create passes to clone(2)
_PROT_EXEC = 0x4
_MADVICE = (4, 8, 14, 15, 25)  # DONTNEED FREE HUGEPAGE NOHUGEPAGE COLLAPSE
_FUTEX_OPERATION = 0xFFFFFFFF & ~0x100  # all but FUTEX_CLOCK_REALTIME
_FUTEX_PRIVATE = 0x80
_FUTEX_OPERATIONS = (0, 1, 3, 4, 5, 9, 10)  # [CMP_]REQUEUE WAKE_OP WAIT/WAKE[_BITSET]
_FUTEX_WAITS = (0, 9)
_LAST_CLOCK = 11  # CLOCK_TAI; above are clocks of descriptors and of other processes


class Context(msgspec.Struct, frozen=True):
    """What an argument filter needs to know: the filter so far, and whether threads."""

    rules: SyscallFilter
    threads: bool


class ArgumentFilter(msgspec.Struct, frozen=True):
    """One call's condition.

    Attributes:
        words: what passes and what the rest gets, for auditors.
        add: adds the rules to a filter.
    """

    words: str
    add: Callable[[Context, str], None]


def allow_equal(
    context: Context, call: str, argument: int, values: tuple[int, ...]
) -> None:
    """Let `call` through when one argument has one of `values`."""
    import pyseccomp as bpf  # noqa: PLC0415 - libseccomp is needed by the supervisor only

    for value in values:
        context.rules.add_rule(bpf.ALLOW, call, bpf.Arg(argument, bpf.EQ, value))


def _check_protection(context: Context, call: str) -> None:
    """Keep memory from being executable (W^X for JITs)."""
    import pyseccomp as bpf  # noqa: PLC0415 - likewise

    for wanted, action in ((0, bpf.ALLOW), (_PROT_EXEC, bpf.ERRNO(errno.EACCES))):
        condition = bpf.Arg(2, bpf.MASKED_EQ, _PROT_EXEC, wanted)
        context.rules.add_rule(action, call, condition)


def _check_advice(context: Context, call: str) -> None:
    allow_equal(context, call, 2, _MADVICE)


def _check_read(context: Context, call: str) -> None:
    allow_equal(context, call, 0, (FD.NULL, FD.REQUEST))


def _check_write(context: Context, call: str) -> None:
    allow_equal(context, call, 0, (FD.OUTPUT, FD.ERRORS, FD.RESULT))


def _check_close(context: Context, call: str) -> None:
    """Let the child's own go; finalizers may still try the rest."""
    import pyseccomp as bpf  # noqa: PLC0415 - likewise

    allow_equal(context, call, 0, tuple(FD))
    beyond = bpf.Arg(0, bpf.GT, max(FD))
    context.rules.add_rule(bpf.ERRNO(errno.EBADF), call, beyond)


def _check_sendmsg(context: Context, call: str) -> None:
    allow_equal(context, call, 0, (FD.TRANSFER,))


def _check_clone(context: Context, call: str) -> None:
    import pyseccomp as bpf  # noqa: PLC0415 - likewise

    action = bpf.ALLOW if context.threads else bpf.ERRNO(errno.EAGAIN)
    context.rules.add_rule(action, call, bpf.Arg(0, bpf.EQ, THREAD_FLAGS))


def _check_futex(context: Context, call: str) -> None:
    """Keep priority inheritance away, and what another run could be woken by.

    A shared futex in a page of a library's file is the same for every run. pthread_join
    waits for a thread with one, because the kernel wakes it so at the thread's end.
    """
    import pyseccomp as bpf  # noqa: PLC0415 - likewise

    shared = _FUTEX_WAITS if context.threads else ()
    private = (one | _FUTEX_PRIVATE for one in _FUTEX_OPERATIONS)
    for operation in (*private, *shared):
        condition = bpf.Arg(1, bpf.MASKED_EQ, _FUTEX_OPERATION, operation)
        context.rules.add_rule(bpf.ALLOW, call, condition)


def _check_clock(context: Context, call: str) -> None:
    """Keep the clocks of other processes and of devices away."""
    import pyseccomp as bpf  # noqa: PLC0415 - likewise

    known = bpf.Arg(0, bpf.LE, _LAST_CLOCK)
    context.rules.add_rule(bpf.ALLOW, call, known)
    beyond = bpf.Arg(0, bpf.GT, _LAST_CLOCK)
    context.rules.add_rule(bpf.ERRNO(errno.EINVAL), call, beyond)


def _check_own(context: Context, call: str) -> None:
    """Answer about the calling thread, not about other processes."""
    import pyseccomp as bpf  # noqa: PLC0415 - likewise

    context.rules.add_rule(bpf.ALLOW, call, bpf.Arg(0, bpf.EQ, 0))
    context.rules.add_rule(bpf.ERRNO(errno.ESRCH), call, bpf.Arg(0, bpf.NE, 0))


_PROTECTION = "when the memory will not be executable; else EACCES"
_CLOCKS = f"clocks 0 to {_LAST_CLOCK}; else EINVAL"

ARGUMENT_FILTERS: dict[str, ArgumentFilter] = {
    "mmap": ArgumentFilter(_PROTECTION, _check_protection),
    "mprotect": ArgumentFilter(_PROTECTION, _check_protection),
    "madvise": ArgumentFilter(
        "advice DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE, COLLAPSE", _check_advice
    ),
    "read": ArgumentFilter("descriptors 0 (null) and 3 (request)", _check_read),
    "write": ArgumentFilter("descriptors 1, 2 (output) and 4 (result)", _check_write),
    "close": ArgumentFilter("descriptors 0 to 6; else EBADF", _check_close),
    "sendmsg": ArgumentFilter(
        "descriptor 5, which hands over the listener and is closed before the task",
        _check_sendmsg,
    ),
    "clone": ArgumentFilter(
        "the flags of a thread where the run may have several, else EAGAIN for them",
        _check_clone,
    ),
    "futex": ArgumentFilter(
        "waiting, waking, requeueing, of this process alone; no priority inheritance; "
        "with threads also waiting on a shared word, as for a thread's end",
        _check_futex,
    ),
    "clock_gettime": ArgumentFilter(_CLOCKS, _check_clock),
    "clock_getres": ArgumentFilter(_CLOCKS, _check_clock),
    "clock_nanosleep": ArgumentFilter(_CLOCKS, _check_clock),
    "sched_getaffinity": ArgumentFilter(
        "of the calling thread (0); else ESRCH", _check_own
    ),
}
"""By system call; what the words do not name ends the run."""
