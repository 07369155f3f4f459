"""From a downloaded workunit to a result file: verify, run in the jail, write down.

Fails closed: whatever does not verify ends in a result file that says so with its code,
and what this volunteer did not allow ends in "not for this host". The level comes from the
admission alone; argv and environment select nothing here (I4).

A frozen verifier holds no libraries for tasks: each flavor is an unpacked tree of its own,
whose every byte is hashed again before it starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.digests import Digest
from stoilo.core.errors import PolicyRefusal, StoiloError, TrustError
from stoilo.core.levels import Level
from stoilo.core.types import RunLayer, RunOutcome, RunStatus
from stoilo.executor.verifier.boinc_session import Session
from stoilo.executor.verifier.checkpoints import KeptRun
from stoilo.executor.verifier.host_verifier import HostVerifier, JailRunner, Runtimes
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trees import (
    WantedTree,
    check_tree,
    evict_trees,
    hold_tree,
    set_aside,
)
from stoilo.executor.verifier.workunit import (
    Disposition,
    HostState,
    ResultHeader,
    VerifiedTask,
    Work,
    render_result,
)
from stoilo.sandbox.process.channel import (
    TASK_JOB,
    UNREADABLE_STATE,
    TaskRequest,
    largest_state,
)
from stoilo.sandbox.process.exchange import Exchange
from stoilo.sandbox.process.report import (
    JailReport,
    JailStatus,
    read_items,
    read_outcome,
    read_refusal,
)
from stoilo.sandbox.process.supervisor import Jail

log = logging.getLogger(__name__)

VERIFIER_VERSION: Final = "0.1.0"
MESSAGE_CHARS: Final = 500
TELL_MS: Final = 500
"""How often a run tells of its progress at most, ms."""

RUNTIME_PROGRAM: Final = "stoilo-runtime"
"""The one program of a flavor's tree: the zygote; nothing on its command line."""

Watch = Callable[[Exchange], object]
"""Takes a run that is about to begin."""


def _frozen_jail(level: Level, command: Sequence[str]) -> Jail:
    """Return a jail whose zygote is a frozen runtime."""
    return Jail(level, TASK_JOB, command=lambda: command)


class TreeRuntimes:
    """Runs the one task of this process with a frozen flavor of a release.

    Args:
        directory: this computer's own, of unpacked trees.
        platform: of this computer.
        cap_bytes: what the trees may take.
        make: makes a jail for a level, from a command.
    """

    def __init__(
        self,
        directory: Path,
        platform: str,
        cap_bytes: int,
        *,
        make: Callable[[Level, Sequence[str]], Jail] = _frozen_jail,
    ) -> None:
        self.platform = platform
        self._directory = directory
        self._cap = cap_bytes
        self._make = make
        self._held = ExitStack()

    def flavors(self, trust: TrustedRelease) -> frozenset[str]:
        """Return the flavors that the release has for this computer."""
        return frozenset(
            part.flavor
            for part in trust.parts
            if part.flavor and part.platform == self.platform
        )

    def jail(
        self, level: Level, flavor: str, trust: TrustedRelease, archive: Path | None
    ) -> Jail:
        """Return a jail, in the flavor's tree, for tasks of `level`.

        Raises:
            TrustError: STO-F006 and the codes of `read_archive`: archive or tree are not
                the release's.
            PolicyRefusal: STO-X013 there is none for this computer, or no room.
            InternalError: STO-X008 the disk refuses.
        """
        part = trust.flavor_part(flavor, self.platform)
        if part is None:
            raise PolicyRefusal(
                "STO-X013", f"the release has no such flavor for {self.platform}"
            )
        digest = Digest(part.tree)
        wanted = WantedTree(digest, Digest(part.archive.sha256), part.archive.size)
        # Held while the jail lives, so that nobody evicts the tree.
        place = self._held.enter_context(
            hold_tree(self._directory, wanted, archive, self._cap)
        )
        try:
            check_tree(place, digest)
        except TrustError:
            self._held.close()
            set_aside(self._directory, digest)  # the next task unpacks it anew
            raise
        jail = self._make(level, (str(place / RUNTIME_PROGRAM),))
        self._held.callback(jail.close)  # before the tree that its zygote runs in
        return jail

    def close(self) -> None:
        """End every jail and let the trees go; the least used, where the cap fell."""
        self._held.close()
        with suppress(OSError):  # no reason to lose a result that is there
            evict_trees(self._directory, self._cap)


class VerifiedExecutor:
    """The real executor: judges every copy, and runs those that may run.

    Args:
        root: the trusted TUF root metadata.
        state: this host's own directory, outside of what a project writes.
        host: what this volunteer allows, and its compiled floors.
        clock: s since 1970.
        runtimes: where tasks run.
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
        runtimes: Runtimes,
        version: str = VERIFIER_VERSION,
        release_build: bool = False,
        keeper: Session | None = None,
    ) -> None:
        self._keeper = keeper
        self._runtimes = runtimes
        self._verifier = HostVerifier(
            root,
            state,
            host,
            clock=clock,
            runtimes=self._runtimes,
            release_build=release_build,
        )
        self._version = version

    def execute(self, work: Work, watch: Watch = lambda _: None) -> bytes:
        """Return the result file's bytes.

        `watch`: gets the run before it begins, and may end it from another thread.

        Raises:
            InternalError: this machine's own trouble; the copy may be tried again.
        """
        header = ResultHeader(
            format="stoilo-result/1",
            result=work.result,
            workunit=work.workunit,
            disposition=Disposition.REFUSED,
            verifier=self._version,
        )
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
            return refuse(header, error, Disposition.NOT_FOR_THIS_HOST)
        except TrustError as error:
            return refuse(header, error, Disposition.REFUSED)
        header = msgspec.structs.replace(header, checkpoint=verified.checkpoint)
        return self._run(task, source, jail, header, watch)

    def close(self) -> None:
        """End every jail."""
        self._runtimes.close()

    def _run(
        self,
        task: VerifiedTask,
        source: str,
        jail: JailRunner,
        header: ResultHeader,
        watch: Watch,
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
    jail: JailRunner,
    keeper: Session,
    watch: Watch,
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
        raise TrustError("STO-A020", "the task module is no UTF-8 text") from error


def refuse(header: ResultHeader, error: StoiloError, disposition: Disposition) -> bytes:
    """Return the result file of a copy that does not run, with the error's code."""
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
