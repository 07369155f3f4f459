"""A level's system call filters for auditors: each open call with its reason, then programs.

Four programs are in force: two for runs (with one thread, with several), that of the zygote,
which every run inherits, and that of the process that waits for the zygote.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from stoilo.sandbox.kernel import filters
from stoilo.sandbox.kernel.filters import (
    ARGUMENT_FILTERS,
    WAITER_CALLS,
    ZYGOTE_CALLS,
    OwnCall,
)

if TYPE_CHECKING:
    from stoilo.core.levels import Level, SyscallRules


# Reads a classic BPF program of seccomp: as text for auditors, and as a decision ------
#
# Nothing here is used to make or load a filter; it exists so that what is loaded can be read
# and tried without loading it. Source: linux/filter.h, linux/seccomp.h, seccomp(2).


_INSTRUCTION = struct.Struct("=HBBI")
_LOAD, _AND, _JUMP, _RETURN = 0x20, 0x54, 0x05, 0x06
_COMPARE: dict[int, tuple[str, Callable[[int, int], bool]]] = {
    0x15: ("==", lambda left, right: left == right),
    0x25: (">", lambda left, right: left > right),
    0x35: (">=", lambda left, right: left >= right),
    0x45: ("&", lambda left, right: bool(left & right)),
}
_ACTIONS = {
    0x80000000: "kill the process",
    0x7FFF0000: "allow",
    0x7FF00000: "fail with ENOSYS, unless a run's own filter has its answer",
    0x7FC00000: "stop and tell the zygote, which kills and names the call",
}
_ERRNO_ACTION, _DATA = 0x00050000, 0xFFFF
_WORD = 0xFFFFFFFF
ARCHITECTURES = {0xC000003E: "x86_64", 0xC00000B7: "aarch64"}
"""AUDIT_ARCH_… of linux/audit.h → machine."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data


@dataclass(frozen=True, slots=True)
class Instruction:
    """One struct sock_filter."""

    code: int  # operation
    if_true: int  # instructions to skip when a comparison holds
    if_false: int  # the same when it does not
    operand: int  # constant, offset or action


def parse_program(program: bytes) -> tuple[Instruction, ...]:
    """Return the instructions of a program, in order.

    Raises:
        struct.error: not a whole number of instructions.
        ValueError: an operation that seccomp filters of ours do not have.
    """
    found = tuple(Instruction(*row) for row in _INSTRUCTION.iter_unpack(program))
    for one in found:
        if one.code not in {_LOAD, _AND, _JUMP, _RETURN, *_COMPARE}:
            raise ValueError(f"unknown BPF operation {one.code:#x}")
    return found


def describe_action(action: int) -> str:
    """Return what a filter's answer means, in words."""
    if action & ~_DATA == _ERRNO_ACTION:
        number = action & _DATA
        return f"fail with {errno.errorcode.get(number, str(number))}"
    return _ACTIONS.get(action, f"{action:#010x}")


def _describe_load(offset: int) -> str:
    if offset == _NUMBER:
        return "A = number of the call"
    if offset == _ARCHITECTURE:
        return "A = architecture"
    argument, high = divmod(offset - _ARGUMENTS, 8)
    return f"A = argument {argument}, {'high' if high else 'low'} half"


def _describe(place: int, one: Instruction, shown: str) -> str:
    following = place + 1
    if one.code == _LOAD:
        return _describe_load(one.operand)
    if one.code == _AND:
        return f"A = A & {one.operand:#x}"
    if one.code == _JUMP:
        return f"go to {following + one.operand}"
    if one.code == _RETURN:
        return describe_action(one.operand)
    return _describe_comparison(following, one, shown)


def _describe_comparison(following: int, one: Instruction, shown: str) -> str:
    sign = _COMPARE[one.code][0]
    yes, no = following + one.if_true, following + one.if_false
    if yes == following:
        return f"if not A {sign} {shown}: go to {no}"
    if no == following:
        return f"if A {sign} {shown}: go to {yes}"
    return f"if A {sign} {shown}: go to {yes}, else to {no}"


def _following(place: int, one: Instruction) -> tuple[int, ...]:
    # Jumps only go forward
    if one.code == _RETURN:
        return ()
    if one.code == _JUMP:
        return (place + 1 + one.operand,)
    if one.code in _COMPARE:
        return (place + 1 + one.if_true, place + 1 + one.if_false)
    return (place + 1,)


def _trace_accumulator(instructions: Sequence[Instruction]) -> list[int]:
    loaded = [-1] * (len(instructions) + 1)
    for place, one in enumerate(instructions):
        for after in _following(place, one):
            loaded[after] = one.operand if one.code == _LOAD else loaded[place]
    return loaded


def disassemble(program: bytes, name_call: Callable[[int], str]) -> Iterator[str]:
    """Return one numbered line for each instruction."""
    instructions = parse_program(program)
    loaded = _trace_accumulator(instructions)

    def show(place: int, value: int) -> str:
        if loaded[place] == _NUMBER and " " not in (name := name_call(value)):
            return name
        machines = ARCHITECTURES if loaded[place] == _ARCHITECTURE else {}
        return machines.get(value, f"{value:#x}")

    for place, one in enumerate(instructions):
        yield f"{place:4}  {_describe(place, one, show(place, one.operand))}"


def evaluate(
    program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()
) -> int:
    """Return the action that the kernel would take for one call.

    Args:
        program: BPF bytes.
        architecture: AUDIT_ARCH_… of the caller.
        number: of the system call.
        arguments: up to six registers; missing ones are zero.
    """
    words = [number & _WORD, architecture, 0, 0]
    for value in (*arguments, *(0,) * (6 - len(arguments))):
        words += [value & _WORD, value >> 32 & _WORD]
    instructions, place, accumulator = parse_program(program), 0, 0
    while place < len(instructions):
        one = instructions[place]
        place += 1
        if one.code == _RETURN:
            return one.operand
        if one.code == _LOAD:
            accumulator = words[one.operand // 4]
        elif one.code == _AND:
            accumulator &= one.operand
        elif one.code == _JUMP:
            place += one.operand
        else:
            holds = _COMPARE[one.code][1](accumulator, one.operand)
            place += one.if_true if holds else one.if_false
    raise ValueError("the program runs past its end")


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
    yield "Runs with one thread", filters.build_filter(rules, threads=False)
    yield "Runs with several threads", filters.build_filter(rules, threads=True)
    yield "The zygote", filters.build_zygote_filter(rules, threads=several)
    yield "The process that waits for it", filters.build_waiter_filter()


def _list_programs(level: Level) -> Iterator[str]:
    for whose, program in _programs(level):
        yield ""
        yield f"{whose}:"
        yield from disassemble(program, filters.name_syscall)


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
