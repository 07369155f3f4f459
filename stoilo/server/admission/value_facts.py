"""What the server wants to know of a hostile value: its library types, its length.

Reading a value costs by its elements, up to half a second for a MiB of them, and Python
does nothing else meanwhile. So only few elements are read here (`LIGHT`), and what has more
in a process of its own: this module, run as a program, with bounds on time and memory.
"""

from __future__ import annotations

import mmap
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

import msgspec

from stoilo.core.codec.reader import SkeletonBounds
from stoilo.core.codec.skeleton import decode
from stoilo.core.digests import Buffer
from stoilo.core.errors import TrustError
from stoilo.core.types import BOUNDS
from stoilo.policies.levels import find_argument_types

# About a millisecond; strings are copied, the bytes of arrays are only looked at
LIGHT: Final = SkeletonBounds(nodes=2_000, loose=BOUNDS.inline_arguments_bytes)

TIME_S: Final = 60
MEMORY_BYTES: Final = 1536 * 1024 * 1024
NICENESS: Final = 15
TOO_LARGE: Final = "STO-D005"  # what `decode` says of a value beyond its bounds


class ValueFacts(msgspec.Struct, frozen=True, tag=True):
    """About one encoded value."""

    types: tuple[str, ...]  # dotted library types in it, sorted
    items: int = -1  # its length when it is a list, -1 else


class _Refusal(msgspec.Struct, frozen=True, tag=True):
    """Why a value is none."""

    code: str
    message: str


def find_facts(data: Buffer, bounds: SkeletonBounds) -> ValueFacts:
    """Return the facts of an encoded value (untrusted).

    Raises:
        TrustError: ``STO-D…``; ``STO-D005`` also for one beyond `bounds`.
    """
    node = decode(data, bounds)
    items = len(node) if isinstance(node, list) else -1
    return ValueFacts(find_argument_types(node), items)


def read_facts(data: bytes) -> ValueFacts:
    """Return the facts of arguments, wherever their size wants them read; blocks."""
    try:
        return find_facts(data, LIGHT)
    except TrustError as error:
        if error.code != TOO_LARGE:
            raise
    with os.fdopen(os.memfd_create("value"), "w+b") as file:  # no pipe: one step
        file.write(data)
        file.flush()
        return _read_beside(file)


def read_blob(path: Path, size: int) -> tuple[str, ...]:
    """Return the library types in an uploaded value's file; blocks. Raises ``STO-D…``."""
    if size <= LIGHT.loose:
        return read_facts(path.read_bytes()).types
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return find_facts(memoryview(data), LIGHT).types
        except TrustError as error:
            if error.code != TOO_LARGE:
                raise
        return _read_beside(file).types


def _read_beside(file: IO[bytes]) -> ValueFacts:
    """Ask a process of its own, whose input is the value's file."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIME_S,
            check=True,
        )
        found = msgspec.msgpack.decode(done.stdout, type=ValueFacts | _Refusal)
    except (subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise TrustError(
            TOO_LARGE, "an encoded value takes too much memory or time to read"
        ) from error
    if isinstance(found, _Refusal):
        raise TrustError(found.code, found.message)
    return found


def _bound_this_process() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_S, TIME_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)


def _input() -> Buffer:
    """Return what stands at the input, a file without reading it."""
    if stat.S_ISREG(os.fstat(0).st_mode):
        return memoryview(mmap.mmap(0, 0, access=mmap.ACCESS_READ))
    return sys.stdin.buffer.read()


def main() -> None:
    """Say what stands at the input."""
    _bound_this_process()
    found: ValueFacts | _Refusal
    try:
        found = find_facts(_input(), SkeletonBounds())
    except TrustError as error:
        found = _Refusal(error.code, error.message)
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))


if __name__ == "__main__":
    main()
