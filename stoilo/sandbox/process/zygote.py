"""The zygote: a clean process of one thread that forks one jailed child per run.

It is exec'ed with an empty environment and the control socket as descriptor 0, imports
what the level's preload list names, and never sees task data or secrets: requests and
results pass it by as descriptors. It watches, with one poll loop, the supervisor (whose
death ends it), every child's pidfd, the listeners of their filters, and the lifelines by
which the supervisor asks for a kill.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import sys
from collections.abc import Callable
from typing import NoReturn, cast

import msgspec

from stoilo.core.types import RunLimits
from stoilo.sandbox.kernel import calls, mechanisms
from stoilo.sandbox.kernel.mechanisms import KernelHost, Mechanism, find_missing
from stoilo.sandbox.process import channel, child
from stoilo.sandbox.process.channel import (
    EXIT_SETUP,
    Ended,
    Hello,
    Ready,
    Started,
    StartRun,
    receive,
    send,
)
from stoilo.sandbox.process.child import ChildPlan, Job, run_child

LOWEST_FREE = 16
"""Descriptors below this number are kept for the child's fixed ones."""
_REFUSAL_BYTES = 64


class _Run(msgspec.Struct, eq=False):
    """One child, from fork to report."""

    pid: int
    pidfd: int
    lifeline: channel.socket
    transfer: channel.socket
    listener: int = -1
    denied: bool = False
    syscall: int = 0
    refused: str = ""
    descriptors: set[int] = msgspec.field(default_factory=set)


def _take_control() -> channel.socket:
    # No descriptor of ours may lie on a low number: a child puts its pipes there, and a task
    # would hold what it did not close.
    os.closerange(3, 1 << 20)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    while null < LOWEST_FREE:
        null = os.dup(null)
    control = os.dup(0)
    for low in (0, 1, 2):
        os.dup2(null, low)
    return channel.adopt(control)


def _leave_pid_namespace_parent(program: bytes, *, leaves_root: bool) -> None:
    # Unsharing counts from the next fork on: the child goes on as init of the new pid
    # namespace, with which the kernel ends every run; the parent waits for it.
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.closerange(0, 1 << 20)
        _harden(leaves_root=leaves_root, own_uids=False)
        calls.close_process(program)
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    calls.kill_with_parent()
    if os.getppid() not in {0, parent}:
        os._exit(1)


def _watch_supervisor(pid: int) -> int:
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(1)
    if os.getppid() != pid:
        os._exit(1)
    return watch


class Zygote:
    """The poll loop and its table of children."""

    def __init__(
        self,
        control: channel.socket,
        supervisor: int,
        hello: Hello,
        job: Job,
        statm: int,
        thread_setters: tuple[Callable[[int], object], ...],
    ) -> None:
        self._control = control
        self._supervisor = supervisor
        self._hello = hello
        self._job = job
        self._poll = select.poll()
        self._runs: dict[int, _Run] = {}
        self._started = int.from_bytes(os.urandom(2), "big")
        self._statm = statm
        self._thread_setters = thread_setters
        self.counts_alone = self.own_uids = False
        self._ruleset = calls.create_empty_ruleset(calls.detect_abi())

    def serve(self) -> NoReturn:
        """Fork on demand until the supervisor goes away."""
        for descriptor in (self._control.fileno(), self._supervisor):
            self._poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                self._dispatch(descriptor)

    def _dispatch(self, descriptor: int) -> None:
        if descriptor == self._supervisor:
            self._leave()
        if descriptor == self._control.fileno():
            self._accept()
            return
        run = self._runs.get(descriptor)
        if run is None:
            return
        if descriptor == run.listener:
            self._note_syscall(run)
        elif descriptor == run.transfer.fileno():
            self._take_listener(run)
        elif descriptor == run.lifeline.fileno():
            self._forget(run, descriptor)
            self._kill(run)
        else:
            self._finish(run)

    def _leave(self) -> NoReturn:
        for run in set(self._runs.values()):
            self._kill(run)
        os._exit(0)

    def _kill(self, run: _Run) -> None:
        # By pidfd first: it names this very process, also after its number was given away.
        # It is reaped when its pidfd says so.
        try:
            calls.signal_process(run.pidfd, calls.SIGKILL)
            os.killpg(run.pid, calls.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # already dead, or not yet the leader of its own group

    def _watch(self, run: _Run, descriptor: int) -> None:
        run.descriptors.add(descriptor)
        self._runs[descriptor] = run
        self._poll.register(descriptor, select.POLLIN)

    def _forget(self, run: _Run, descriptor: int) -> None:
        run.descriptors.discard(descriptor)
        self._runs.pop(descriptor, None)
        self._poll.unregister(descriptor)

    def _accept(self) -> None:
        try:
            message = receive(self._control, StartRun)
        except (OSError, msgspec.MsgspecError):
            message = None
        if message is None:
            self._leave()
        order, descriptors = message
        self._fork(order, descriptors)

    def _fork(self, order: StartRun, descriptors: list[int]) -> None:
        request, output, result, lifeline = descriptors
        ours, theirs = channel.pair()
        self._started += 1
        programs = self._hello.programs
        plan = ChildPlan(
            limits=RunLimits(
                cpu_s=order.cpu_s,
                memory_bytes=order.memory_bytes,
                threads=order.threads,
            ),
            base_bytes=mechanisms.read_address_space(self._statm),
            uid=mechanisms.uid_of_run(self._started) if self.own_uids else None,
            zygote=os.getpid(),
            ruleset=self._ruleset,
            program=programs.single if order.threads == 1 else programs.threaded,
            request_bytes=order.request_bytes,
            descriptors=(request, output, result, theirs.fileno()),
            thread_setters=self._thread_setters,
            counts_alone=self.counts_alone,
        )
        far = channel.adopt(lifeline)
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            run_child(plan, self._job)
        theirs.close()
        for descriptor in (request, output, result):
            os.close(descriptor)
        if pid < 0:
            _tell(far, Ended(EXIT_SETUP << 8, 0.0, 0, refused="fork"))
            far.close()
            ours.close()
            return
        run = _Run(pid, os.pidfd_open(pid), far, ours)
        _tell(run.lifeline, Started(), (run.pidfd,))
        for descriptor in (run.pidfd, lifeline, ours.fileno()):
            self._watch(run, descriptor)

    def _take_listener(self, run: _Run) -> None:
        # Receive the filter's listener, or the name of what could not be applied
        try:
            data, received = channel.receive_with_descriptors(
                run.transfer, _REFUSAL_BYTES, 1
            )
        except OSError:
            data, received = b"", []
        self._forget(run, run.transfer.fileno())
        if data[:1] == b"!":
            run.refused = data[1:].decode("ascii", "replace")
        if received:
            run.listener = received[0]
            self._watch(run, run.listener)

    def _note_syscall(self, run: _Run) -> None:
        number = calls.read_notification(run.listener)
        if number is not None:
            run.denied, run.syscall = True, number
            self._kill(run)
        self._forget(run, run.listener)

    def _finish(self, run: _Run) -> None:
        if run.transfer.fileno() in run.descriptors:
            self._take_listener(run)
        _, status, usage = os.wait4(run.pid, 0)
        report = Ended(
            wait_status=status,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_bytes=usage.ru_maxrss * 1024,
            denied=run.denied,
            syscall=run.syscall,
            refused=run.refused,
        )
        for descriptor in tuple(run.descriptors):
            self._forget(run, descriptor)
        os.close(run.pidfd)
        if run.listener >= 0:
            os.close(run.listener)
        run.transfer.close()
        _tell(run.lifeline, report)
        run.lifeline.close()


def _tell(
    lifeline: channel.socket,
    message: Started | Ended,
    descriptors: tuple[int, ...] = (),
) -> None:
    # The supervisor may no longer care; that is no reason to end the other runs.
    try:
        send(lifeline, message, descriptors)
    except OSError:
        pass


def _prepare(hello: Hello) -> Job:
    """Import everything, then freeze the heap so that forks share it.

    Collecting during the imports would find little and cost a tenth of a cold start.
    """
    gc.disable()
    for name in (*hello.level.preload, *hello.preload):
        importlib.import_module(name)
    job = cast("Job", importlib.import_module(hello.job))
    job.prepare(hello.level)
    gc.freeze()
    gc.enable()
    return job


def _harden(*, leaves_root: bool, own_uids: bool) -> None:
    """Give up what the process itself does not need; what it forks inherits the rest."""
    mechanisms.drop_bounding_set()
    if leaves_root:
        mechanisms.leave_root()
    mechanisms.keep_zygote_capabilities(own_uids=own_uids)
    mechanisms.become_undumpable()
    calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)


def _exec_without_quirks() -> None:
    # A caller may have switched address randomisation off, or made readable memory
    # executable (READ_IMPLIES_EXEC): then W^X would mean nothing. Only exec undoes it.
    if calls.clear_personality():
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - it asks for no shell


def _describe_layers(spaces: tuple[str, ...]) -> tuple[str, ...]:
    always = [m.value for m in Mechanism if m is not Mechanism.LINUX]
    return (
        *always,
        f"landlock_abi_{calls.detect_abi()}",
        *(f"namespace_{name}" for name in spaces),
    )


def main(host: KernelHost | None = None) -> NoReturn:
    """Run the zygote on descriptor 0."""
    _exec_without_quirks()
    control = _take_control()
    message = receive(control, Hello)
    if message is None or sys.flags.hash_randomization:
        os._exit(1)
    hello, _ = message
    missing = find_missing(host or KernelHost())
    if missing:
        send(control, Ready(missing=tuple(m.value for m in missing)))
        os._exit(0)
    supervisor = _watch_supervisor(hello.supervisor)
    os.nice(hello.niceness)
    extras = mechanisms.find_bounds()
    spaces = mechanisms.enter_namespaces()
    own_uids, leaves_root = os.geteuid() == 0, mechanisms.can_leave_root()
    if "pid" in spaces:
        _leave_pid_namespace_parent(hello.programs.waiter, leaves_root=leaves_root)
    try:
        job = _prepare(hello)
        statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        threaded = hello.level.max_limits().threads > 1
        setters = child.find_thread_setters() if threaded else ()
        if "mount" in spaces and mechanisms.empty_root():
            spaces = (*spaces, "root")
        _harden(leaves_root=leaves_root, own_uids=own_uids)
        if "pid" in spaces:
            calls.kill_with_parent()  # another user's processes do not keep it
        if mechanisms.restrict_speculation():
            extras = (*extras, mechanisms.LAYER)
        zygote = Zygote(control, supervisor, hello, job, statm, setters)
        zygote.own_uids = own_uids
        zygote.counts_alone = "user" in spaces and mechanisms.counts_processes()
    except ImportError as error:
        send(control, Ready(error=str(error), failed_import=error.name or "?"))
        os._exit(0)
    except Exception as error:  # noqa: BLE001 - process edge: the supervisor is told
        send(control, Ready(error=f"{type(error).__name__}: {error}"))
        os._exit(0)
    layers = (*_describe_layers(spaces), *extras)
    calls.close_process(hello.programs.zygote)
    send(control, Ready(layers=layers))
    zygote.serve()


if __name__ == "__main__":
    main()
