"""The jailed child: closes the jail around itself, then reads the request and runs it.

Everything here runs after the fork and before any byte of the task is looked at, in the
order of reference sandbox §3.5. A step that fails ends the child, with the mechanism's name
sent to the zygote; nothing weaker is ever tried instead.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from typing import NoReturn, Protocol

import msgspec

from stoilo.core.levels import Level
from stoilo.core.types import RunLimits
from stoilo.sandbox.kernel import calls, mechanisms
from stoilo.sandbox.kernel.calls import FD
from stoilo.sandbox.kernel.mechanisms import Mechanism, MechanismError
from stoilo.sandbox.process import channel
from stoilo.sandbox.process.channel import (
    EXIT_JOB_FAILED,
    EXIT_SETUP,
    FRAME_HEADER,
    OUT_OF_MEMORY,
    Output,
)

_SHARED_DESCRIPTORS, _ROOM_FOR_RUNS = 1 << 16, 256


class Job(Protocol):
    """What a job module offers: to the zygote, then to its children."""

    def prepare(self, level: Level) -> None:
        """Import and build everything that runs will need."""
        ...

    def run(self, request: bytes, output: Output) -> bytes:
        """Work on `request` (untrusted) inside the jail; return one frame."""
        ...


class ChildPlan(msgspec.Struct, frozen=True):
    """All that the zygote decided before the fork."""

    limits: RunLimits  # what the run may use
    base_bytes: int  # address space of the zygote
    uid: int | None  # user to become, None for an ordinary user
    zygote: int  # pid of the parent, as the child sees it
    ruleset: int  # descriptor of the empty Landlock ruleset
    program: bytes  # BPF program to close with
    request_bytes: int  # length of the request
    # Request, output, result and transfer ends, all above the fixed ones
    descriptors: tuple[int, int, int, int]
    # What tells libraries how many threads the run may have
    thread_setters: tuple[Callable[[int], object], ...] = ()
    # Whether RLIMIT_NPROC sees nothing but the zygote and its runs where the uid is an
    # ordinary user's
    counts_alone: bool = False


@contextmanager
def applying(mechanism: Mechanism) -> Iterator[None]:
    """Turn a failure of the block into the name of the mechanism."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise MechanismError(mechanism.value) from error


def _die_with_parent(plan: ChildPlan) -> None:
    calls.kill_with_parent()
    if os.getppid() != plan.zygote:  # it died before the signal was armed
        os._exit(EXIT_SETUP)


def _begin_session(plan: ChildPlan) -> None:
    # No terminal to push input into (TIOCSTI), and a group that can be killed whole.
    del plan
    os.setsid()


def _refuse_privileges(plan: ChildPlan) -> None:
    del plan
    calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)


def _enter_landlock(plan: ChildPlan) -> None:
    calls.restrict_self(plan.ruleset)


def _arrange_descriptors(plan: ChildPlan) -> None:
    # What stays open is a road out that nothing later closes: seccomp lets read and write
    # through by these numbers.
    request, output, result, transfer = plan.descriptors
    for source, target in (
        (transfer, FD.TRANSFER),
        (output, FD.OUTPUT),
        (output, FD.ERRORS),
        (request, FD.REQUEST),
        (result, FD.RESULT),
    ):
        os.dup2(source, target)
    os.closerange(FD.LISTENER, 1 << 20)


def _count_processes(plan: ChildPlan) -> int | None:
    """Return RLIMIT_NPROC: the task's threads and the pools of its libraries."""
    threads = plan.limits.threads
    if threads == 1:
        return 0
    own = threads + len(plan.thread_setters) * (threads - 1)
    if plan.uid is not None:
        return own
    # The uid is shared: with all that its user runs, or in a user namespace of the zygote's
    # own with the other runs, for which there must be room.
    return _ROOM_FOR_RUNS + own if plan.counts_alone else None


def _count_descriptors(plan: ChildPlan) -> int:
    """Return RLIMIT_NOFILE: the fixed descriptors and the listener, under an own uid.

    Linux also compares it with the descriptors that all processes of the uid have on the
    way through unix sockets, and refuses to send the listener above it (unix(7),
    ETOOMANYREFS). Where the uid is shared, its user's other programs count as well.
    """
    return FD.LISTENER + 1 if plan.uid is not None else _SHARED_DESCRIPTORS


def _lower_limits(plan: ChildPlan) -> None:
    mechanisms.apply_limits(
        plan.limits,
        base_bytes=plan.base_bytes,
        descriptors=_count_descriptors(plan),
        processes=_count_processes(plan),
    )


def _drop_identity(plan: ChildPlan) -> None:
    mechanisms.drop_identity(plan.uid)


def _become_undumpable(plan: ChildPlan) -> None:
    del plan
    mechanisms.become_undumpable()


class Step(msgspec.Struct, frozen=True):
    """One mechanism and what applies it to the calling process."""

    mechanism: Mechanism
    apply: Callable[[ChildPlan], None]


STEPS = (
    Step(Mechanism.PARENT_DEATH, _die_with_parent),
    Step(Mechanism.SESSION, _begin_session),
    Step(Mechanism.NO_NEW_PRIVS, _refuse_privileges),
    Step(Mechanism.LANDLOCK, _enter_landlock),
    Step(Mechanism.DESCRIPTORS, _arrange_descriptors),
    Step(Mechanism.RLIMITS, _lower_limits),
    Step(Mechanism.IDENTITY, _drop_identity),
    Step(Mechanism.UNDUMPABLE, _become_undumpable),
    Step(Mechanism.PARENT_DEATH, _die_with_parent),  # setresuid cleared the signal
)
"""All but the filter, in order. The self-test applies them one by one."""


def close_jail(plan: ChildPlan) -> None:
    """Apply every mechanism but the filter."""
    for step in STEPS:
        with applying(step.mechanism):
            step.apply(plan)


def seal(transfer: channel.socket, program: bytes) -> None:
    """Load the filter and hand its listener to the zygote; nothing is open afterwards.

    The listener closes in any case: a denied call would wait for ever for the answer of a
    listener that only this process holds.
    """
    with applying(Mechanism.SECCOMP):
        listener = calls.load_filter(program)
        try:
            channel.send_with_descriptors(transfer, b"+", (listener,))
        finally:
            os.close(listener)
    transfer.close()


def _read_request(file: FileIO, size: int) -> bytes:
    request = bytearray(size)
    view = memoryview(request)
    with file:
        while view and (count := file.readinto(view)):
            view = view[count:]
    if view:
        raise EOFError
    return bytes(request)


def _write_frame(frame: bytes) -> None:
    for data in (len(frame).to_bytes(FRAME_HEADER, "big"), frame):
        view = memoryview(data)
        while view:
            view = view[os.write(FD.RESULT, view) :]


def _work(plan: ChildPlan, job: Job, source: FileIO) -> int:
    try:
        if plan.limits.threads > 1:
            for set_threads in plan.thread_setters:
                set_threads(plan.limits.threads)
        _write_frame(job.run(_read_request(source, plan.request_bytes), Output()))
    except MemoryError:  # of our own code: a task's is told in its frame
        os.write(FD.RESULT, OUT_OF_MEMORY)
    except BaseException:  # noqa: BLE001 - the process edge: only a status leaves
        return EXIT_JOB_FAILED
    return 0


def _report_refusal(plan: ChildPlan, mechanism: str) -> None:
    # The descriptors may have their fixed numbers already, or not yet.
    for number in (plan.descriptors[3], FD.TRANSFER):
        try:
            os.write(number, f"!{mechanism}".encode())
        except OSError:
            continue
        return


def run_child(plan: ChildPlan, job: Job) -> NoReturn:
    """Become the jailed child and run `job`; never returns."""
    try:
        close_jail(plan)
        transfer = channel.adopt(int(FD.TRANSFER))
        source = FileIO(int(FD.REQUEST))
        seal(transfer, plan.program)
    except MechanismError as error:
        _report_refusal(plan, str(error.args[0]))
        os._exit(EXIT_SETUP)
    os._exit(_work(plan, job, source))


# Threads of the linear algebra libraries, set inside the jail for runs that may have some
#
# The zygote starts it with one thread (a pool does not survive a fork), finds the setter
# while files can still be opened, and the child calls it once the filter is closed.


_NAMES = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def mapped_files(maps: bytes) -> frozenset[str]:
    r"""Return the files in the text of ``/proc/PID/maps``; their paths may hold spaces.

    Source: proc_pid_maps(5): address, perms, offset, dev, inode, then the path as it is,
    only a newline in it written as ``\012``.
    """
    fields = (line.split(maxsplit=5) for line in maps.split(b"\n"))
    paths = (parts[5] for parts in fields if len(parts) > 5)  # noqa: PLR2004  # as above
    return frozenset(
        os.fsdecode(path.replace(b"\\012", b"\n"))
        for path in paths
        if path.startswith(b"/")
    )


def find_thread_setters() -> tuple[Callable[[int], object], ...]:
    """Return what sets the thread count of each loaded OpenBLAS, and of torch."""
    with open("/proc/self/maps", "rb") as lines:  # noqa: PTH123 - pathlib would cost every cold start 3 ms
        mapped = mapped_files(lines.read())
    setters: list[Callable[[int], object]] = []
    for path in sorted(
        path for path in mapped if "openblas" in path.rpartition("/")[2]
    ):
        library = ctypes.CDLL(path)
        setters += [
            getattr(library, name) for name in _NAMES if hasattr(library, name)
        ][:1]
    torch = sys.modules.get("torch")
    return (*setters, torch.set_num_threads) if torch else tuple(setters)


OUT_OF_MEMORY_CODE = "STO-S013"


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether `error` is the interpreter's own or numpy's, by exact type.

    A class of a task may have any name and any base.
    """
    arrays = sys.modules.get("numpy._core._exceptions")
    known = (MemoryError, getattr(arrays, "_ArrayMemoryError", MemoryError))
    return type(error) in known
