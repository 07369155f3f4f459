"""A level's system call filters, built by libseccomp in the supervisor.

The binding is found without asking other programs where the library is: `pyseccomp` looks
for its libraries by `ctypes.util`, which runs ``ldconfig`` and compilers. A frozen program
has the one that it was built with in its own tree, and starts nothing.
"""

from __future__ import annotations

import ctypes.util
import errno
import sys
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stoilo.core.levels import SyscallRules
from stoilo.sandbox.kernel.filters import (
    ARGUMENT_FILTERS,
    WAITER_CALLS,
    Context,
    OwnCall,
    add_own,
    find_own,
)

if TYPE_CHECKING:
    from pyseccomp import SyscallFilter


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
    """Whether an errno is what the default action answers; libseccomp refuses such rules."""
    return denied is Denied.ERRNO and name == _PROBE_ERRNO


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
    return _export(table)


def _export(table: SyscallFilter) -> bytes:
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
    return _build_own(load_binding().TRACE(0), find_own(rules), threads=threads)


def build_waiter_filter() -> bytes:
    """Return the BPF program of the process that only waits for the zygote."""
    return _build_own(load_binding().KILL_PROCESS, WAITER_CALLS, threads=False)


def _build_own(default: int, calls: Mapping[str, OwnCall], *, threads: bool) -> bytes:
    bpf = load_binding()
    table = bpf.SyscallFilter(default)
    table.set_attr(bpf.Attr.ACT_BADARCH, bpf.KILL_PROCESS)
    add_own(Context(table, bpf, threads), calls)
    return _export(table)


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
    """Return what to load for library `name` in a frozen program."""
    file = _FROZEN.get(name)
    if file is None:
        return None
    own = tree / file
    return str(own) if own.exists() else file
