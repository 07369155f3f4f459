"""A level's system call filter as text for auditors: in words, then as instructions."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stoilo.sandbox import bpf, seccomp
from stoilo.sandbox.argument_filters import ARGUMENT_FILTERS

if TYPE_CHECKING:
    from stoilo.core.levels import Level, SyscallRules

__all__ = ["find_libseccomp_version", "render_filter"]

_WIDTH = 78
_CALL_WIDTH = 18


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


def _wrap(names: tuple[str, ...]) -> Iterator[str]:
    line = " "
    for name in sorted(names):
        if len(line) + 1 + len(name) > _WIDTH:
            yield line
            line = " "
        line += f" {name}"
    yield line


def _say_in_words(rules: SyscallRules) -> Iterator[str]:
    yield "Let through with any arguments:"
    yield from _wrap(rules.allow)
    yield ""
    yield "Let through by argument; what the words do not name is stopped:"
    for call in sorted((*rules.guarded, "sendmsg")):
        yield f"  {call:<{_CALL_WIDTH}}{ARGUMENT_FILTERS[call].words}"
    yield ""
    yield "Fail with an error number, without effect:"
    for name, calls in sorted(rules.errno.items()):
        yield f"  {name}:"
        yield from (f"  {line}" for line in _wrap(calls))
    yield ""
    yield "Every other call is stopped before it has any effect; the run is killed and"
    yield "the call named. A call of another architecture (i386, x32) kills at once."


def _list_programs(rules: SyscallRules) -> Iterator[str]:
    for threads, words in ((False, "one thread"), (True, "several threads")):
        program = seccomp.build_filter(rules, threads=threads)
        yield ""
        yield f"Runs with {words}:"
        yield from bpf.disassemble(program, seccomp.name_syscall)


def render_filter(level: Level) -> str:
    """Return the filter of `level` on this machine as text.

    The words come from the level's table, the listing from the very bytes that a child
    loads; a test compares the two call by call.
    """
    lines = [
        f"System calls of level {level.name}",
        "",
        *_say_in_words(level.syscalls),
        "",
        f"The program on {os.uname().machine}, by libseccomp {find_libseccomp_version()}",
        "(A is the accumulator; comparisons are unsigned; numbers of calls as names).",
        *_list_programs(level.syscalls),
    ]
    return "\n".join(lines) + "\n"
