"""A level's system call filters: what they let through, and their BPF made by libseccomp.

Rules compare whole 64-bit registers; what no rule of a call covers gets the filter's default
and ends the run.

A run that got out of its own filter would find its zygote next. The zygote's filter is
inherited: every run has both, and of two answers the kernel takes the stricter. So it lets
through what runs of the level may do, what the set-up of a child needs, and the zygote's own
work; what it denies fails with ENOSYS, an answer that gives way to that of the run's own
filter, which names the call.

Programs are made in the supervisor, which alone loads libseccomp.
"""

from __future__ import annotations

import ctypes.util
import errno
import functools
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stoilo.core.levels import SyscallRules
from stoilo.sandbox.kernel.calls import FD
from stoilo.sandbox.kernel.mechanisms import FIRST_UID

if TYPE_CHECKING:
    from pyseccomp import SyscallFilter


THREAD_FLAGS = 0x3D0F00  # what glibc's pthread_create passes to clone(2)
_PROT_EXEC = 0x4
_MADVICE = (4, 8, 14, 15, 25)  # DONTNEED FREE HUGEPAGE NOHUGEPAGE COLLAPSE
_FUTEX_OPERATION = 0xFFFFFFFF & ~0x100  # all but FUTEX_CLOCK_REALTIME
_FUTEX_PRIVATE = 0x80
_FUTEX_OPERATIONS = (0, 1, 3, 4, 5, 9, 10)  # [CMP_]REQUEUE WAKE_OP WAIT/WAKE[_BITSET]
_FUTEX_WAITS = (0, 9)
_LAST_CLOCK = 11  # CLOCK_TAI; above are clocks of descriptors and of other processes


Condition = tuple[int, str, int] | tuple[int, str, int, int]


class Context(msgspec.Struct, frozen=True):
    """What an argument filter needs: the filter so far, the binding, whether threads.

    A condition is a register's number, libseccomp's name of a comparison, and its operands;
    all conditions of one rule must hold.
    """

    rules: SyscallFilter
    bpf: Any
    threads: bool

    def allow(self, call: str, *conditions: Condition) -> None:
        """Let `call` through under `conditions`."""
        self._add(self.bpf.ALLOW, call, conditions)

    def fail(self, call: str, number: int, *conditions: Condition) -> None:
        """Let `call` fail with an error number under `conditions`."""
        self._add(self.bpf.ERRNO(number), call, conditions)

    def _add(self, action: object, call: str, conditions: Iterable[Condition]) -> None:
        arguments = (
            self.bpf.Arg(place, getattr(self.bpf, comparison), *operands)
            for place, comparison, *operands in conditions
        )
        self.rules.add_rule(action, call, *arguments)


class ArgumentFilter(msgspec.Struct, frozen=True):
    """One call's condition."""

    words: str  # what passes and what the rest gets, for auditors
    add: Callable[[Context, str], None]  # adds the rules to a filter


def allow_equal(
    context: Context, call: str, argument: int, values: tuple[int, ...]
) -> None:
    """Let `call` through when one argument has one of `values`."""
    for value in values:
        context.allow(call, (argument, "EQ", value))


def _only(argument: int, *values: int) -> Callable[[Context, str], None]:
    return lambda context, call: allow_equal(context, call, argument, values)


def _check_protection(context: Context, call: str) -> None:
    # No memory becomes executable (W^X): an exploit brings no machine code of its own.
    context.allow(call, (2, "MASKED_EQ", _PROT_EXEC, 0))
    context.fail(call, errno.EACCES, (2, "MASKED_EQ", _PROT_EXEC, _PROT_EXEC))


def _check_close(context: Context, call: str) -> None:
    # The child's own may go; finalizers that try others find them closed, as they are.
    allow_equal(context, call, 0, tuple(FD))
    context.fail(call, errno.EBADF, (0, "GT", max(FD)))


def _check_clone(context: Context, call: str) -> None:
    thread: Condition = (0, "EQ", THREAD_FLAGS)
    if context.threads:
        context.allow(call, thread)
    else:
        context.fail(call, errno.EAGAIN, thread)


def _check_futex(context: Context, call: str) -> None:
    """Keep priority inheritance away, and what another run could be woken by.

    A shared futex in a page of a library's file is the same for every run. pthread_join
    waits for a thread with one, because the kernel wakes it so at the thread's end.
    """
    shared = _FUTEX_WAITS if context.threads else ()
    private = (one | _FUTEX_PRIVATE for one in _FUTEX_OPERATIONS)
    for operation in (*private, *shared):
        context.allow(call, (1, "MASKED_EQ", _FUTEX_OPERATION, operation))


def _check_clock(context: Context, call: str) -> None:
    # Higher numbers are clocks of descriptors and of other processes: a side channel.
    context.allow(call, (0, "LE", _LAST_CLOCK))
    context.fail(call, errno.EINVAL, (0, "GT", _LAST_CLOCK))


def _check_own(context: Context, call: str) -> None:
    # 0 is the calling thread; any other number would ask about another process.
    context.allow(call, (0, "EQ", 0))
    context.fail(call, errno.ESRCH, (0, "NE", 0))


_PROTECTION = "when the memory will not be executable; else EACCES"
_CLOCKS = f"clocks 0 to {_LAST_CLOCK}; else EINVAL"

ARGUMENT_FILTERS: dict[str, ArgumentFilter] = {
    "mmap": ArgumentFilter(_PROTECTION, _check_protection),
    "mprotect": ArgumentFilter(_PROTECTION, _check_protection),
    "madvise": ArgumentFilter(
        "advice DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE, COLLAPSE", _only(2, *_MADVICE)
    ),
    "read": ArgumentFilter(
        "descriptors 0 (null) and 3 (request)", _only(0, FD.NULL, FD.REQUEST)
    ),
    "write": ArgumentFilter(
        "descriptors 1, 2 (output) and 4 (result)",
        _only(0, FD.OUTPUT, FD.ERRORS, FD.RESULT),
    ),
    "close": ArgumentFilter("descriptors 0 to 6; else EBADF", _check_close),
    "sendmsg": ArgumentFilter(
        "descriptor 5, which hands over the listener and is closed before the task",
        _only(0, FD.TRANSFER),
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


# The zygote, and the process that waits for it ------------------------------------------

_FORK_FLAGS = 0x1200011  # what fork(3) passes: CHILD_CLEARTID, CHILD_SETTID, SIGCHLD
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_WORD = 0xFFFFFFFF


class OwnCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why and with which arguments a call is open to one of the two; see the table."""

    reason: str  # what needs it, for auditors
    words: str = ""  # with which arguments, empty for any
    argument: int = 0  # the register that must hold one of the values
    values: tuple[int, ...] = ()
    check: str = ""  # another condition, by name in `_OWN_CHECKS`; empty for none


class OwnCalls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``own_calls.toml``."""

    zygote: dict[str, OwnCall]
    waiter: dict[str, OwnCall]


@functools.cache
def load_own_calls() -> OwnCalls:
    """Return what is open to the zygote, besides what its runs may do, and to the waiter."""
    table = Path(__file__).with_name("own_calls.toml").read_bytes()
    own = msgspec.toml.decode(table, type=OwnCalls)
    waiter = {
        call: _as_runs(call, one.reason) if one.check == "runs" else one
        for call, one in own.waiter.items()
    }
    return OwnCalls(own.zygote, waiter)


def _as_runs(call: str, reason: str) -> OwnCall:
    """Return a call that is open under the condition of runs."""
    return OwnCall(reason, ARGUMENT_FILTERS[call].words, check="runs")


def _check_fork(context: Context, call: str) -> None:
    flags = (_FORK_FLAGS, THREAD_FLAGS) if context.threads else (_FORK_FLAGS,)
    allow_equal(context, call, 0, flags)


def _check_filter(context: Context, call: str) -> None:
    context.allow(call, (0, "EQ", _SET_MODE_FILTER), (1, "EQ", _NEW_LISTENER))


def _check_ids(context: Context, call: str) -> None:
    # One of the transient users' ids, never a person's or root: a run that got into its zygote
    # could become no one.
    for mask, first in ((_WORD & ~0xFF, FIRST_UID), (_WORD & ~0xFFF, 0xF000)):
        context.allow(call, *((place, "MASKED_EQ", mask, first) for place in range(3)))


_OWN_CHECKS: Mapping[str, Callable[[Context, str], None]] = {
    "": lambda context, call: context.allow(call),
    "runs": lambda context, call: ARGUMENT_FILTERS[call].add(context, call),
    "fork": _check_fork,
    "filter": _check_filter,
    "ids": _check_ids,
}


def find_own(rules: SyscallRules) -> dict[str, OwnCall]:
    """Return every call that is open to a zygote whose runs have `rules`.

    Where both need a call, the zygote's condition counts: it is the wider one.
    """
    why = "runs of this level may make it"
    runs = {call: OwnCall(why) for call in rules.allow}
    runs |= {call: _as_runs(call, why) for call in rules.guarded}
    return runs | load_own_calls().zygote


_PROBE_ERRNO = "EPERM"
_FROZEN: Final = {"c": "libc.so.6", "seccomp": "libseccomp.so.2"}
"""The host's C library is loaded already; the other lies in the frozen tree."""


class Denied(StrEnum):
    """What happens to a call that no rule lets through.

    ``KILL`` is what every task gets. ``ERRNO`` answers EPERM instead, so that a probe goes
    on to its next call; the jail refuses it for every job but the probe.
    """

    KILL = "kill"
    ERRNO = "errno"


def _answers_by_default(name: str, denied: Denied) -> bool:
    # Whether an errno is what the default action answers; libseccomp refuses such rules
    return denied is Denied.ERRNO and name == _PROBE_ERRNO


def build_filter(
    rules: SyscallRules,
    *,
    threads: bool,
    denied: Denied = Denied.KILL,
    readable: bool = False,
) -> bytes:
    """Return the BPF program of a level, or libseccomp's words for it.

    Args:
        rules: the level's table (trusted).
        threads: whether clone(2) with thread flags is let through.
        denied: what a call gets that no rule lets through.
        readable: ask for the words.

    Raises:
        OSError: libseccomp does not know a name or refuses a rule.
        KeyError: `rules` asks for a guard that does not exist.
    """
    bpf = load_binding()
    polite = bpf.ERRNO(getattr(errno, _PROBE_ERRNO))
    table = bpf.SyscallFilter(bpf.NOTIFY if denied is Denied.KILL else polite)
    table.set_attr(bpf.Attr.ACT_BADARCH, bpf.KILL_PROCESS)
    for call in rules.allow:
        table.add_rule(bpf.ALLOW, call)
    for call in (*rules.guarded, "sendmsg"):
        ARGUMENT_FILTERS[call].add(Context(table, bpf, threads), call)
    for name, calls in rules.errno.items():
        for call in () if _answers_by_default(name, denied) else calls:
            table.add_rule(bpf.ERRNO(getattr(errno, name)), call)
    return _export(table, readable=readable)


def _export(table: SyscallFilter, *, readable: bool) -> bytes:
    with tempfile.TemporaryFile() as file:
        (table.export_pfc if readable else table.export_bpf)(file)
        file.seek(0)
        return file.read()


def build_zygote_filter(
    rules: SyscallRules, *, threads: bool, readable: bool = False
) -> bytes:
    """Return the BPF program of a zygote whose runs have `rules`.

    What it denies gets the answer for a tracer: without one the call fails with ENOSYS, and
    it gives way to a run's own filter, whose answer stops and names the call.
    """
    default = load_binding().TRACE(0)
    return _build_own(default, find_own(rules), threads=threads, readable=readable)


def build_waiter_filter(*, readable: bool = False) -> bytes:
    """Return the BPF program of the process that only waits for the zygote."""
    default = load_binding().KILL_PROCESS
    return _build_own(
        default, load_own_calls().waiter, threads=False, readable=readable
    )


def _build_own(
    default: int, calls: Mapping[str, OwnCall], *, threads: bool, readable: bool
) -> bytes:
    bpf = load_binding()
    table = bpf.SyscallFilter(default)
    table.set_attr(bpf.Attr.ACT_BADARCH, bpf.KILL_PROCESS)
    context = Context(table, bpf, threads)
    for name, call in calls.items():
        if call.values:
            allow_equal(context, name, call.argument, call.values)
        else:
            _OWN_CHECKS[call.check](context, name)
    return _export(table, readable=readable)


def name_syscall(number: int) -> str:
    """Return the name of a call on this machine, or its number when unknown."""
    bpf = load_binding()
    try:
        name: bytes = bpf.resolve_syscall(bpf.system_arch(), number)
    except (OSError, ValueError):
        return f"number {number}"
    return name.decode("ascii")


def load_binding(tree: Path | None = None) -> Any:  # noqa: ANN401 - an untyped binding
    """Return `pyseccomp`, imported when first needed.

    Args:
        tree: where a frozen program's libraries lie; None asks the interpreter.

    Raises:
        ImportError: it is not installed.
        OSError: the library cannot be loaded.
        RuntimeError: the library cannot be found.
    """
    where = getattr(sys, "_MEIPASS", None) if tree is None else str(tree)
    if where is None or "pyseccomp" in sys.modules:
        import pyseccomp  # noqa: PLC0415 - its cost is the supervisor's alone

        return pyseccomp
    search = ctypes.util.find_library
    ctypes.util.find_library = lambda name: _locate(name, Path(where))
    try:
        import pyseccomp  # noqa: PLC0415
    finally:
        ctypes.util.find_library = search
    return pyseccomp


def _locate(name: str, tree: Path) -> str | None:
    file = _FROZEN.get(name)
    if file is None:
        return None
    own = tree / file
    return str(own) if own.exists() else file
