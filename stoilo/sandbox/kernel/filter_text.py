"""A level's system call filters for auditors: each open call with its reason.

Four programs are in force: two for runs (with one thread, with several), that of the zygote,
which every run inherits, and that of the process that waits for the zygote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from stoilo.sandbox.kernel import filters
from stoilo.sandbox.kernel.filters import (
    ARGUMENT_FILTERS,
    OwnCall,
    load_own_calls,
)

if TYPE_CHECKING:
    from stoilo.core.levels import Level, SyscallRules


ALLOWED = "allow"
HANDOVER = "sendmsg"
"""Let through in every filter, for its own listener."""
_CALL_WIDTH = 23


class OpenCall(msgspec.Struct, frozen=True):
    """A system call that does not end a process."""

    call: str  # its name
    answer: str  # ``allow``, or the error number that it fails with
    reason: str  # why, for auditors; empty where nobody said
    arguments: str = ""  # with which arguments, and what the rest gets; empty for any


class FilterAudit(msgspec.Struct, frozen=True):
    """What is open at a level, to whom, and why."""

    level: str  # its name
    runs: tuple[OpenCall, ...]  # for its runs
    zygote: tuple[OpenCall, ...]  # for its zygote, besides what its runs may do
    waiter: tuple[OpenCall, ...]  # for the process that waits for the zygote


def audit_level(level: Level) -> FilterAudit:
    """Return every open call of `level` with its reason."""
    rules = level.syscalls
    return FilterAudit(
        level=level.name,
        runs=tuple(_audit_runs(rules)),
        zygote=tuple(_audit_own(load_own_calls().zygote)),
        waiter=tuple(_audit_own(load_own_calls().waiter)),
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


def render_filter(level: Level) -> str:
    """Return what is open at `level`, and why; a test tries it on the very programs."""
    lines = [
        f"System calls of level {level.name}",
        "",
        *_say_in_words(audit_level(level)),
    ]
    return "\n".join(lines) + "\n"


def list_programs(level: Level) -> str:
    """Return the programs of `level` on this machine, as libseccomp spells them out."""
    rules = level.syscalls
    several = level.max_limits().threads > 1
    single, threaded = (
        filters.build_filter(rules, threads=threads, readable=True)
        for threads in (False, True)
    )
    programs = {
        "Runs with one thread": single,
        "Runs with several threads": threaded,
        "The zygote": filters.build_zygote_filter(
            rules, threads=several, readable=True
        ),
        "The process that waits for it": filters.build_waiter_filter(readable=True),
    }
    return "".join(f"\n{who}:\n{text.decode()}" for who, text in programs.items())
