"""Runs trials: a parent and a process confined by one mechanism, first without it.

`main` is the whole of an exec'ed process with a clean environment (as a zygote is), so that
what a trial changes touches nobody. It gets one order on its standard input, answers with
the list of attempts, and runs no code but `attempts`.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from stoilo.core.types import MIB, RunLimits
from stoilo.sandbox.kernel import calls, mechanisms
from stoilo.sandbox.kernel.calls import FD
from stoilo.sandbox.kernel.mechanisms import Mechanism, MechanismError
from stoilo.sandbox.process import child
from stoilo.sandbox.process.child import ChildPlan
from stoilo.sandbox.suite.attempts import (
    ATTEMPTS,
    Attempted,
    Scene,
    Trial,
    applicable_trials,
)

LIMITS = RunLimits(cpu_s=1, memory_bytes=64 * MIB)
_LOWEST_FREE, _INHERITED = 16, 200
_REACHED, _STOPPED, _INAPPLICABLE, _CRASHED = b"+", b"-", b"!", b"?"
_STOPPING_SIGNALS = (signal.SIGKILL, signal.SIGSYS, signal.SIGXCPU, signal.SIGXFSZ)
_PATIENCE_S, _ANSWER_BYTES = 20.0, 64
_SHARED_PERMISSIONS = 0o1777


class Order(msgspec.Struct, frozen=True):
    """What the self-test asks for."""

    program: bytes  # BPF program of the level
    missing: tuple[str, ...] = ()  # mechanisms that this host lacks: not tried
    only: tuple[str, ...] = ()  # mechanisms to try, empty for all


@dataclass(frozen=True, slots=True)
class Confinement:
    """One process to be: what is applied to it, and what it attempts."""

    trial: Trial
    applied: bool
    scene: Scene
    program: bytes
    statm: int

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanisms in force, the one under trial last."""
        own = [m for m in Mechanism if m.value == self.trial.name and self.applied]
        return (*self.trial.needs, *own)


def _apply(mechanism: Mechanism, plan: ChildPlan) -> None:
    with child.applying(mechanism):
        if mechanism is Mechanism.SECCOMP:
            os.close(calls.load_filter(plan.program))  # unheard, a denied call fails
        for apply in dict.fromkeys(
            step.apply for step in child.STEPS if step.mechanism is mechanism
        ):
            apply(plan)


def _confine(job: Confinement, plan: ChildPlan) -> None:
    for mechanism in job.trial.needs:
        _apply(mechanism, plan)
    job.trial.before()
    for mechanism in job.mechanisms[len(job.trial.needs) :]:
        _apply(mechanism, plan)


def _say(plan: ChildPlan, answer: bytes) -> None:
    # Answer on the descriptor that is left: the mechanisms move or close them
    for descriptor in (plan.descriptors[2], int(FD.RESULT)):
        try:
            os.write(descriptor, answer)
        except OSError:
            continue
        return


def _be_confined(job: Confinement, plan: ChildPlan, ready: int) -> NoReturn:
    answer = _CRASHED
    try:
        _confine(job, plan)
        if job.trial.orphan:
            os.write(ready, b"r")
            os.close(ready)
        answer = _attempt(job)
    except MechanismError as error:
        answer = _INAPPLICABLE + str(error.args[0]).encode("ascii")
    finally:
        _say(plan, answer)
        os._exit(0)


def _attempt(job: Confinement) -> bytes:
    # Attempt it; what the operating system refuses did not get through
    try:
        reached = ATTEMPTS[job.trial.words](job.scene) is not False
    except (OSError, MemoryError):
        return _STOPPED
    return _REACHED if reached else _STOPPED


def _be_parent(job: Confinement, report: int) -> NoReturn:
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if job.applied and job.trial.name.startswith("namespace_"):
        entered = mechanisms.enter_namespaces()
        if "mount" in entered and job.trial.name == "namespace_root":
            mechanisms.empty_root()
    elif mechanisms.is_lonely_root():
        mechanisms.enter_user()  # as the zygote does
    null = os.dup(0)
    ready, far_ready = os.pipe()
    plan = ChildPlan(
        limits=LIMITS,
        base_bytes=mechanisms.read_address_space(job.statm),
        uid=mechanisms.uid_of_run(os.getpid()) if os.geteuid() == 0 else None,
        zygote=os.getpid(),
        ruleset=calls.create_empty_ruleset(calls.detect_abi()),
        program=job.program,
        request_bytes=0,
        descriptors=(null, null, report, null),
    )
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        _be_confined(job, plan, far_ready)
    os.close(far_ready)
    if job.trial.orphan:
        os.read(ready, 1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if job.trial.by_parent and signal.SIGUSR1 in signal.sigpending():
        os.write(report, _REACHED)
    if os.WIFSIGNALED(status):
        stopped = os.WTERMSIG(status) in _STOPPING_SIGNALS
        os.write(report, _STOPPED if stopped else _CRASHED)
    os._exit(0)


def _read_answer(report: int) -> bytes:
    answer, deadline = b"", time.monotonic() + _PATIENCE_S
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([report], [], [], left)[0]:
            break
        data = os.read(report, _ANSWER_BYTES)
        if not data:
            break
        answer += data
    return answer


def _reaches(job: Confinement) -> bool:
    """Whether the attempt of `job` gets through.

    Raises:
        MechanismError: it could not be applied, so that nothing was attempted.
        RuntimeError: the attempt itself broke, which says nothing.
    """
    report, far_report = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(report)
        _be_parent(job, far_report)
    os.close(far_report)
    answer = _read_answer(report)
    os.close(report)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
    if answer.startswith(_INAPPLICABLE):
        raise MechanismError(answer[1:].decode("ascii", "replace"))
    if _CRASHED in answer or not (answer or job.trial.orphan):
        raise RuntimeError(f"the attempt broke: {job.trial.name}, {job.trial.words}")
    return _REACHED in answer


@contextmanager
def _setting() -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="stoilo-selftest-"))
    folder.chmod(_SHARED_PERMISSIONS)
    file, private_file = folder / "file", folder / "private"
    for path, mode in ((file, 0o644), (private_file, 0o600)):
        path.write_text("reached")
        path.chmod(mode)
    opened = os.open(file, os.O_RDONLY)
    os.dup2(opened, _INHERITED)
    shared_memory = calls.make_shared_memory(4096)
    abstract = f"stoilo-selftest-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        listener.bind(f"\0{abstract}")
        listener.listen()
        yield Scene(
            folder=str(folder),
            file=str(file),
            private_file=str(private_file),
            descriptor=_INHERITED,
            port=server.getsockname()[1],
            abstract=abstract,
            shared_memory=shared_memory,
            outsider=os.getpid(),
            memory_bytes=LIMITS.memory_bytes + 2 * MIB,
            cpu_s=LIMITS.cpu_s,
        )
    calls.remove_shared_memory(shared_memory)
    shutil.rmtree(folder)


def _fill_low_descriptors() -> None:
    # Keep the child's fixed descriptors free of everything else
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor < _LOWEST_FREE:
        descriptor = os.dup(descriptor)


class Tried(msgspec.Struct, frozen=True):
    """The answer: attempts, and mechanisms that could not be applied after all."""

    attempts: tuple[Attempted, ...] = ()
    inapplicable: tuple[str, ...] = ()


def _try(trial: Trial, scene: Scene, order: Order, statm: int) -> Attempted:
    control, reached = (
        _reaches(Confinement(trial, applied, scene, order.program, statm))
        for applied in (False, True)
    )
    return Attempted(trial.name, trial.words, "alone", control, reached)


def _try_all(order: Order, statm: int) -> Tried:
    attempts: list[Attempted] = []
    inapplicable: list[str] = []
    with _setting() as scene:
        for trial in applicable_trials(calls.detect_abi()):
            if {trial.name, *trial.needs} & {*order.missing, *inapplicable}:
                continue
            if order.only and trial.name not in order.only:
                continue
            try:
                attempts.append(_try(trial, scene, order, statm))
            except MechanismError as error:
                inapplicable.append(str(error.args[0]))
    return Tried(tuple(attempts), tuple(inapplicable))


def main() -> None:
    """Run every trial that the order on standard input leaves; answer on standard output."""
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    _fill_low_descriptors()
    sys.stdout.buffer.write(msgspec.msgpack.encode(_try_all(order, statm)))
