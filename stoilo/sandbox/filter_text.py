"""A level's system call filters for auditors: each open call with its reason, then programs.

Four programs are in force: two for runs (with one thread, with several), that of the zygote,
which every run inherits, and that of the process that waits for the zygote.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from stoilo.sandbox import bpf, seccomp
from stoilo.sandbox.argument_filters import ARGUMENT_FILTERS
from stoilo.sandbox.zygote_filters import WAITER_CALLS, ZYGOTE_CALLS, OwnCall

if TYPE_CHECKING:
    from stoilo.core.levels import Level, SyscallRules

__all__ = [
    "FilterAudit",
    "OpenCall",
    "audit_level",
    "find_libseccomp_version",
    "render_filter",
]

ALLOWED = "allow"
HANDOVER = "sendmsg"
"""Let through in every filter, for its own listener."""
_CALL_WIDTH = 23


class OpenCall(msgspec.Struct, frozen=True):
    """A system call that does not end a process.

    Attributes:
        call: its name.
        answer: ``allow``, or the error number that it fails with.
        reason: why, for auditors; empty where nobody said.
        arguments: with which arguments, and what the rest gets; empty for any.
    """

    call: str
    answer: str
    reason: str
    arguments: str = ""


class FilterAudit(msgspec.Struct, frozen=True):
    """What is open at a level, to whom, and why.

    Attributes:
        level: its name.
        runs: for its runs.
        zygote: for its zygote, besides what its runs may do.
        waiter: for the process that waits for the zygote.
    """

    level: str
    runs: tuple[OpenCall, ...]
    zygote: tuple[OpenCall, ...]
    waiter: tuple[OpenCall, ...]


def audit_level(level: Level) -> FilterAudit:
    """Return every open call of `level` with its reason."""
    rules = level.syscalls
    return FilterAudit(
        level=level.name,
        runs=tuple(_audit_runs(rules)),
        zygote=tuple(_audit_own(ZYGOTE_CALLS)),
        waiter=tuple(_audit_own(WAITER_CALLS)),
    )


def _audit_runs(rules: SyscallRules) -> Iterator[OpenCall]:
    why = rules.reasons
    for call in sorted(rules.allow):
        yield OpenCall(call, ALLOWED, why.get(call, ""))
    for call in sorted((*rules.guarded, HANDOVER)):
        yield OpenCall(call, ALLOWED, why.get(call, ""), ARGUMENT_FILTERS[call].words)
    for name, calls in sorted(rules.errno.items()):
        for call in sorted(calls):
            yield OpenCall(call, name, why.get(call, ""))


def _audit_own(calls: Mapping[str, OwnCall]) -> Iterator[OpenCall]:
    for call, one in sorted(calls.items()):
        yield OpenCall(call, ALLOWED, one.reason, one.words)


class _Version(ctypes.Structure):
    """struct scmp_version of seccomp.h."""

    _fields_ = (
        ("major", ctypes.c_uint),
        ("minor", ctypes.c_uint),
        ("micro", ctypes.c_uint),
    )


def find_libseccomp_version() -> str:
    """Return the version of the library that makes the filters, for example ``2.5.4``."""
    import pyseccomp  # noqa: PLC0415 - needs libseccomp

    library = pyseccomp._libseccomp  # noqa: SLF001 - the binding has no call for it
    library.seccomp_version.restype = ctypes.POINTER(_Version)
    found = library.seccomp_version().contents
    return f"{found.major}.{found.minor}.{found.micro}"


def _show(calls: tuple[OpenCall, ...]) -> Iterator[str]:
    for one in calls:
        yield f"  {one.call:<{_CALL_WIDTH}}{one.reason}"
        if one.arguments:
            yield f"  {'':<{_CALL_WIDTH}}({one.arguments})"


def _say_in_words(audit: FilterAudit) -> Iterator[str]:
    allowed = [one for one in audit.runs if one.answer == ALLOWED]
    yield "Let through with any arguments:"
    yield from _show(tuple(one for one in allowed if not one.arguments))
    yield ""
    yield "Let through by argument; what the words do not name is stopped:"
    yield from _show(tuple(one for one in allowed if one.arguments))
    yield ""
    yield "Fail with an error number, without effect:"
    for name in sorted({one.answer for one in audit.runs} - {ALLOWED}):
        yield f"  {name}:"
        yield from _show(tuple(one for one in audit.runs if one.answer == name))
    yield ""
    yield "Every other call is stopped before it has any effect; the run is killed and"
    yield "the call named. A call of another architecture (i386, x32) kills at once."
    yield ""
    yield "Let through for the zygote, besides what its runs may do, because every run has"
    yield "its filter too; other calls fail with ENOSYS where no run's filter answers:"
    yield from _show(audit.zygote)
    yield ""
    yield "Let through for the process that waits for the zygote; every other call kills it:"
    yield from _show(audit.waiter)


def _programs(level: Level) -> Iterator[tuple[str, bytes]]:
    rules = level.syscalls
    several = level.max_limits().threads > 1
    yield "Runs with one thread", seccomp.build_filter(rules, threads=False)
    yield "Runs with several threads", seccomp.build_filter(rules, threads=True)
    yield "The zygote", seccomp.build_zygote_filter(rules, threads=several)
    yield "The process that waits for it", seccomp.build_waiter_filter()


def _list_programs(level: Level) -> Iterator[str]:
    for whose, program in _programs(level):
        yield ""
        yield f"{whose}:"
        yield from bpf.disassemble(program, seccomp.name_syscall)


def render_filter(level: Level) -> str:
    """Return the filters of `level` on this machine as text.

    The words come from the tables, the listing from the very bytes that processes load; a
    test compares the two call by call.
    """
    lines = [
        f"System calls of level {level.name}",
        "",
        *_say_in_words(audit_level(level)),
        "",
        f"The programs on {os.uname().machine}, by libseccomp {find_libseccomp_version()}",
        "(A is the accumulator; comparisons are unsigned; numbers of calls as names).",
        *_list_programs(level),
    ]
    return "\n".join(lines) + "\n"
