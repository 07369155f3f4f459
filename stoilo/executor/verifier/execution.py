"""From a downloaded workunit to a result file: verify, run in the jail, write down.

Fails closed: whatever does not verify ends in a result file that says so with its code,
and what this volunteer did not allow ends in "not for this host". The level comes from the
admission alone; argv and environment select nothing here (I4).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.errors import InternalError, PolicyRefusal, StoiloError, TrustError
from stoilo.core.types import RunLayer, RunOutcome, RunStatus
from stoilo.executor.verifier.boinc_session import Session
from stoilo.executor.verifier.checkpoints import KeptRun
from stoilo.executor.verifier.host_verifier import HostVerifier
from stoilo.executor.verifier.runtimes import InstalledRuntimes, Runtimes
from stoilo.executor.verifier.workunit import (
    Disposition,
    HostState,
    ResultHeader,
    VerifiedTask,
    Work,
    render_result,
)
from stoilo.sandbox.process.channel import UNREADABLE_STATE, TaskRequest, largest_state
from stoilo.sandbox.process.exchange import Exchange
from stoilo.sandbox.process.report import (
    JailReport,
    JailStatus,
    read_items,
    read_outcome,
    read_refusal,
)
from stoilo.sandbox.process.supervisor import Jail

CANCELLED = "STO-S008"


class ActiveRuns:
    """The runs of one executor by result name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancels: dict[str, Callable[[], object] | None] = {}
        self._unwanted: set[str] = set()
        self._closed = False

    @contextmanager
    def hold(self, result: str) -> Iterator[None]:
        """Know `result` as running while the block lasts.

        Raises:
            InternalError: ``STO-S008`` after `close`.
        """
        with self._lock:
            if self._closed:
                raise InternalError(CANCELLED, "this executor is closed")
            self._cancels[result] = None
        try:
            yield
        finally:
            with self._lock:
                del self._cancels[result]
                self._unwanted.discard(result)

    def watch(self, result: str, cancel: Callable[[], object]) -> None:
        """Take what ends a run that begins; one that is unwanted is ended at once."""
        with self._lock:
            self._cancels[result] = cancel
            unwanted = self._closed or result in self._unwanted
        # It was cancelled while it was being prepared, when there was nothing to kill yet.
        if unwanted:
            cancel()

    def cancel(self, result: str) -> None:
        """End one run, also one that is still being prepared; others are unharmed."""
        with self._lock:
            if result not in self._cancels:
                return
            self._unwanted.add(result)
            cancel = self._cancels[result]
        if cancel is not None:
            cancel()

    def close(self) -> None:
        """End every run and let none begin."""
        with self._lock:
            self._closed = True
            running = list(self._cancels)
        for result in running:
            self.cancel(result)


log = logging.getLogger(__name__)

VERIFIER_VERSION = "0.1.0"
MESSAGE_CHARS = 500
TELL_MS = 500
"""How often a run tells of its progress at most, ms."""


class Executor(Protocol):
    """Turns downloaded copies into result files."""

    def execute(self, work: Work) -> bytes:
        """Return the result file's bytes.

        Raises:
            InternalError: this machine's own trouble; the copy may be tried again.
                ``STO-S008``: `cancel` or `close` ended it.
        """
        ...

    def cancel(self, result: str) -> None:
        """Kill the run of a copy, from another thread; nothing when it does not run."""
        ...

    def close(self) -> None:
        """End every run and every jail, soon."""
        ...


class VerifiedExecutor:
    """The real executor: judges every copy, and runs those that may run.

    Args:
        root: the trusted TUF root metadata.
        state: this host's own directory, outside of what a project writes.
        host: what this volunteer allows, and its compiled floors.
        clock: s since 1970.
        runtimes: where tasks run; this installation's own libraries unless said.
        version: of this verifier, for the result's header.
        release_build: whether marked roots are refused.
        keeper: keeps what tasks yield and holds their children; None: nobody does, and an
            interrupted task begins again.
    """

    def __init__(
        self,
        root: bytes,
        state: Path,
        host: HostState,
        *,
        clock: Callable[[], float],
        runtimes: Runtimes | None = None,
        version: str = VERIFIER_VERSION,
        release_build: bool = False,
        keeper: Session | None = None,
    ) -> None:
        self._keeper = keeper
        self._runtimes = runtimes or InstalledRuntimes()
        self._verifier = HostVerifier(
            root,
            state,
            host,
            clock=clock,
            runtimes=self._runtimes,
            release_build=release_build,
        )
        self._version = version
        self._runs = ActiveRuns()

    def execute(self, work: Work) -> bytes:
        """Return the result file's bytes; see `Executor`."""
        header = ResultHeader(
            format="stoilo-result/1",
            result=work.result,
            workunit=work.workunit,
            disposition=Disposition.REFUSED,
            verifier=self._version,
        )
        # Known as running from the first check on, so that it can be cancelled while
        # verified.
        with self._runs.hold(work.result):
            try:
                verified = self._verifier.verify(work)
                task = verified.task
                source = _text_of(task)
                jail = self._runtimes.jail(
                    task.level,
                    task.admission.statement.flavor,
                    verified.trust,
                    work.runtime_archive(),
                )
            except PolicyRefusal as error:
                return _refuse(header, error, Disposition.NOT_FOR_THIS_HOST)
            except TrustError as error:
                return _refuse(header, error, Disposition.REFUSED)
            header = msgspec.structs.replace(header, checkpoint=verified.checkpoint)
            return self._run(task, source, jail, header)

    def cancel(self, result: str) -> None:
        """Kill the run of a copy; see `Executor`."""
        self._runs.cancel(result)

    def close(self) -> None:
        """End every run and every jail."""
        self._runs.close()
        self._runtimes.close()

    def _run(
        self, task: VerifiedTask, source: str, jail: Jail, header: ResultHeader
    ) -> bytes:
        statement = task.admission.statement
        request = TaskRequest(
            source=source,
            entry=statement.entry,
            arguments=task.arguments,
            blobs=task.blobs,
            seed=statement.seed,
            now=statement.admitted_at,
            items=statement.map_items,
        )

        def watch(exchange: Exchange) -> None:
            self._runs.watch(header.result, exchange.cancel)

        if self._keeper is None:
            report, step = jail.run(request.encode(), task.limits, watch=watch), 0
        else:
            report, step = _run_kept(task, request, jail, self._keeper, watch)
        if statement.map_items:
            outcomes = read_items(report, statement.map_items)
        else:
            outcomes = (read_outcome(report),)
        frame = _frame(report, outcomes, items=statement.map_items)
        ending = _ending(report, outcomes)
        header = msgspec.structs.replace(
            header,
            disposition=Disposition.RAN,
            admission=task.admission.digest,
            attempt=statement.attempt,
            flavor=statement.flavor,
            layers=report.layers,
            status=ending.status,
            code=ending.code,
            message="" if ending.layer is None else ending.error[:MESSAGE_CHARS],
            layer=ending.layer,
            limit=ending.limit,
            resumed_at=step,
        )
        return render_result(header, frame, report.output[: task.limits.output_bytes])


def _run_kept(
    task: VerifiedTask,
    request: TaskRequest,
    jail: Jail,
    keeper: Session,
    watch: Callable[[Exchange], object],
) -> tuple[JailReport, int]:
    """Run from the task's checkpoint on; from the beginning where it is of no use.

    Returns the report and the step that the run went on from, 0 for the beginning.
    """

    def watch_both(exchange: Exchange) -> None:
        keeper.watch(exchange)
        watch(exchange)

    most = largest_state(task.limits.result_bytes)
    request = msgspec.structs.replace(request, tell_ms=TELL_MS, most_state=most)
    kept = keeper.begin(KeptRun(task.admission.digest, task.limits))
    if kept is not None:
        rest = msgspec.structs.replace(request, step=kept.step, state=kept.state)
        left = kept.limits_left(task.limits)
        report = jail.run(rest.encode(), left, watch=watch_both)
        # Anything but a state that the jail cannot read is the answer; that one begins
        # again.
        if read_refusal(report) != UNREADABLE_STATE:
            return report, kept.step
        keeper.forget()
    return jail.run(request.encode(), task.limits, watch=watch_both), 0


def _text_of(task: VerifiedTask) -> str:
    """Return the source as text: whoever holds the gate's key may sign any bytes."""
    try:
        return task.task_module.decode()
    except UnicodeDecodeError as error:
        raise TrustError("STO-A093", "the task module is no UTF-8 text") from error


def _refuse(
    header: ResultHeader, error: StoiloError, disposition: Disposition
) -> bytes:
    log.info("%s: %s", header.result, error)
    refused = msgspec.structs.replace(
        header,
        disposition=disposition,
        code=error.code,
        message=error.message[:MESSAGE_CHARS],
    )
    return render_result(refused, b"", b"")


def _ending(report: JailReport, outcomes: tuple[RunOutcome, ...]) -> RunOutcome:
    """Return the one outcome that the header states.

    A run of several items that finished is "ok" as a run; the frame has the items.
    """
    if len(outcomes) > 1 and report.status is JailStatus.FINISHED:
        readable = any(one.layer is not RunLayer.RESULT for one in outcomes)
        return RunOutcome(status=RunStatus.OK) if readable else outcomes[0]
    return outcomes[0]


def _frame(
    report: JailReport, outcomes: tuple[RunOutcome, ...], *, items: int
) -> bytes:
    unreadable = all(one.code == "STO-S021" for one in outcomes)
    if report.status is JailStatus.FINISHED and not unreadable:
        return report.frame
    rows = [
        {
            "status": one.status.value,
            "value": None,
            "error_type": "",
            "error_text": one.error,
            "code": one.code,
            "layer": one.layer.value if one.layer else "",
        }
        for one in outcomes
    ]
    if items:
        return skeleton.encode({"items": list(rows)})
    return skeleton.encode(dict(rows[0]))
