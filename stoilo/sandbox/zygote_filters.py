"""The second wall: what the zygote, and the process that waits for it, may still call.

A run that got out of its own filter would find these processes next. The zygote's filter is
inherited: every run has both, and of two answers the kernel takes the stricter. So it lets
through what runs of the level may do, what the set-up of a child needs, and the zygote's own
work; what it denies fails with ENOSYS, an answer that gives way to that of the run's own
filter, which names the call (`seccomp.ZYGOTE_ANSWER`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from stoilo.sandbox.argument_filters import (
    ARGUMENT_FILTERS,
    THREAD_FLAGS,
    Context,
    allow_equal,
)
from stoilo.sandbox.identity import FIRST_UID

if TYPE_CHECKING:
    from stoilo.core.levels import SyscallRules

__all__ = ["WAITER_CALLS", "ZYGOTE_CALLS", "OwnCall", "add_own", "find_own"]

_FORK_FLAGS = 0x1200011  # what fork(3) passes: CHILD_CLEARTID, CHILD_SETTID, SIGCHLD
_NOTIF_RECV = 0xC0502100
_SIGKILL, _AF_UNIX, _SOL_SOCKET = 9, 1, 1
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_PRCTL = (1, 4, 38)  # SET_PDEATHSIG, SET_DUMPABLE, SET_NO_NEW_PRIVS
_EMPTY_PATH = 0x1000
_WORD = 0xFFFFFFFF


class OwnCall(msgspec.Struct, frozen=True):
    """Why a call is open to the zygote or the process that waits for it.

    Attributes:
        reason: what needs it, for auditors.
        words: with which arguments, empty for any.
        add: adds the rules to a filter; None for any arguments.
    """

    reason: str
    words: str = ""
    add: Callable[[Context, str], None] | None = None


def _only(argument: int, *values: int) -> Callable[[Context, str], None]:
    return lambda context, call: allow_equal(context, call, argument, values)


def _check_clone(context: Context, call: str) -> None:
    flags = (_FORK_FLAGS, THREAD_FLAGS) if context.threads else (_FORK_FLAGS,)
    allow_equal(context, call, 0, flags)


def _check_filter(context: Context, call: str) -> None:
    import pyseccomp as bpf  # noqa: PLC0415 - libseccomp is needed by the supervisor only

    mode = bpf.Arg(0, bpf.EQ, _SET_MODE_FILTER)
    listener = bpf.Arg(1, bpf.EQ, _NEW_LISTENER)
    context.rules.add_rule(bpf.ALLOW, call, mode, listener)


def _check_ids(context: Context, call: str) -> None:
    """Let all three ids become one of the transient users', never a person's or root."""
    import pyseccomp as bpf  # noqa: PLC0415 - likewise

    for mask, first in ((_WORD & ~0xFF, FIRST_UID), (_WORD & ~0xFFF, 0xF000)):
        ids = (bpf.Arg(place, bpf.MASKED_EQ, mask, first) for place in range(3))
        context.rules.add_rule(bpf.ALLOW, call, *ids)


_SETUP = "a child's set-up"
_IDS = "61184 to 65535, the transient users and nobody"
_IDENTITY = f"{_SETUP}: a uid of its own"

ZYGOTE_CALLS: Mapping[str, OwnCall] = {
    # its own work: wait, fork, kill, report
    "poll": OwnCall("waits for orders and endings"),
    "ppoll": OwnCall("poll, on machines that lack it"),
    "recvmsg": OwnCall("takes orders, and a filter's listener from a child"),
    "sendmsg": OwnCall("reports; hands over the listener"),
    "socketpair": OwnCall(
        "the pair that the listener comes by", "unix sockets", _only(0, _AF_UNIX)
    ),
    "getsockname": OwnCall("Python asks what kind of socket it was given"),
    "getsockopt": OwnCall(
        "Python asks what kind of socket it was given",
        "options of the socket itself",
        _only(1, _SOL_SOCKET),
    ),
    "clone": OwnCall(
        "forks one child a run",
        "the flags of fork, and of a thread where runs may have several",
        _check_clone,
    ),
    "pidfd_open": OwnCall("holds its child by more than a number"),
    "pidfd_send_signal": OwnCall("kills a child", "SIGKILL", _only(1, _SIGKILL)),
    "kill": OwnCall("kills a child's group", "SIGKILL", _only(1, _SIGKILL)),
    "wait4": OwnCall("reaps a child"),
    "ioctl": OwnCall(
        "reads which call was denied", "of a listener", _only(1, _NOTIF_RECV)
    ),
    "pread64": OwnCall("reads how much memory it has mapped, from an open file"),
    "write": OwnCall(f"{_SETUP}: says which mechanism could not be applied"),
    "close": OwnCall("lets go of what a run had"),
    # a child, between the fork and its own filter
    "prctl": OwnCall(
        f"{_SETUP}: parent death, dumps, no new privileges",
        "PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS",
        _only(0, *_PRCTL),
    ),
    "setsid": OwnCall(f"{_SETUP}: a session of its own"),
    "landlock_restrict_self": OwnCall(f"{_SETUP}: Landlock"),
    "dup2": OwnCall(f"{_SETUP}: the fixed descriptors"),
    "dup3": OwnCall(f"{_SETUP}: the fixed descriptors, on machines that lack dup2"),
    "close_range": OwnCall(f"{_SETUP}: every other descriptor is closed"),
    "prlimit64": OwnCall(f"{_SETUP}: limits", "of the caller (0)", _only(0, 0)),
    "setgroups": OwnCall(_IDENTITY, "none (0)", _only(0, 0)),
    "setresgid": OwnCall(_IDENTITY, _IDS, _check_ids),
    "setresuid": OwnCall(_IDENTITY, _IDS, _check_ids),
    "getresgid": OwnCall(f"{_SETUP}: looks whether it is still root"),
    "getresuid": OwnCall(f"{_SETUP}: looks whether it is still root"),
    "capset": OwnCall(f"{_SETUP}: gives up every capability"),
    "fstat": OwnCall(f"{_SETUP}: Python looks at the request's descriptor"),
    "newfstatat": OwnCall(
        f"{_SETUP}: Python looks at the request's descriptor, in newer C libraries",
        "by descriptor",
        _only(3, _EMPTY_PATH),
    ),
    "uname": OwnCall(f"{_SETUP}: the number of seccomp(2) here"),
    "seccomp": OwnCall(
        f"{_SETUP}: the run's own filter",
        "SECCOMP_SET_MODE_FILTER with a listener",
        _check_filter,
    ),
    "getrandom": OwnCall(f"{_SETUP}: libraries seed anew after a fork"),
}
"""What the zygote needs besides what runs of its level may do."""

_MEMORY = "the interpreter's memory"

WAITER_CALLS: Mapping[str, OwnCall] = {
    "wait4": OwnCall("waits for the zygote"),
    "exit_group": OwnCall("ends as the zygote ended"),
    "restart_syscall": OwnCall("goes on waiting after it was stopped"),
    "rt_sigreturn": OwnCall("returns from a signal"),
    "brk": OwnCall(_MEMORY),
    "munmap": OwnCall(_MEMORY),
    "mmap": OwnCall(
        _MEMORY, ARGUMENT_FILTERS["mmap"].words, ARGUMENT_FILTERS["mmap"].add
    ),
    "futex": OwnCall(
        "the interpreter's lock",
        ARGUMENT_FILTERS["futex"].words,
        ARGUMENT_FILTERS["futex"].add,
    ),
}
"""What the process needs that waits for the init of the pid namespace, its only child."""


def find_own(rules: SyscallRules) -> dict[str, OwnCall]:
    """Return every call that is open to a zygote whose runs have `rules`.

    Where both need a call, the zygote's condition counts: it is the wider one.
    """
    why = "runs of this level may make it"
    runs = {call: OwnCall(why) for call in rules.allow}
    for call in rules.guarded:
        guard = ARGUMENT_FILTERS[call]
        runs[call] = OwnCall(why, guard.words, guard.add)
    return runs | dict(ZYGOTE_CALLS)


def add_own(context: Context, calls: Mapping[str, OwnCall]) -> None:
    """Add the rules of `calls` to a filter."""
    import pyseccomp as bpf  # noqa: PLC0415 - likewise

    for name, call in calls.items():
        if call.add is None:
            context.rules.add_rule(bpf.ALLOW, name)
        else:
            call.add(context, name)
