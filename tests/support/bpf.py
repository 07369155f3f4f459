"""Reads a classic BPF program of seccomp: what the kernel would answer to one call.

Nothing here makes or loads a filter; it exists so that what is loaded can be tried without
loading it. Source: linux/filter.h, linux/seccomp.h, seccomp(2).
"""

from __future__ import annotations

import errno
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_INSTRUCTION = struct.Struct("=HBBI")
_LOAD, _AND, _JUMP, _RETURN = 0x20, 0x54, 0x05, 0x06
_COMPARE: dict[int, Callable[[int, int], bool]] = {
    0x15: operator.eq,
    0x25: operator.gt,
    0x35: operator.ge,
    0x45: lambda left, right: bool(left & right),
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
            holds = _COMPARE[one.code](accumulator, one.operand)
            place += one.if_true if holds else one.if_false
    raise ValueError("the program runs past its end")
