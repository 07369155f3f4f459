"""From a downloaded workunit to a result file: verify, run in the jail, write down.

Fails closed: whatever does not verify ends in a result file that says so with its code,
and what this volunteer did not allow ends in "not for this host". The level comes from the
admission alone; argv and environment select nothing here (I4).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stoilo.core import skeleton
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, PolicyRefusal, StoiloError, TrustError
from stoilo.core.levels import Level
from stoilo.core.limits import RunLimits
from stoilo.core.types import RunLayer, RunOutcome, RunStatus
from stoilo.executor import workdir
from stoilo.executor.ledger import replace_file
from stoilo.executor.release import InstalledRelease, TrustedRelease
from stoilo.executor.result import Disposition, ResultHeader, render_result
from stoilo.executor.runs import Runs
from stoilo.executor.trust import load_trust, parse_release_pack
from stoilo.executor.verifier import HostState, TaskBundle, VerifiedTask, verify_bundle
from stoilo.flavors.manifest import shipped_flavors
from stoilo.policies.levels import load_levels
from stoilo.sandbox.exchange import Exchange
from stoilo.sandbox.report import JailReport, JailStatus
from stoilo.sandbox.rules import LANGUAGE_DIGEST
from stoilo.sandbox.run import TASK_JOB, TaskRequest, read_items, read_outcome
from stoilo.sandbox.supervisor import Jail

__all__ = [
    "VERIFIER_VERSION",
    "Executor",
    "RunnerJail",
    "VerifiedExecutor",
    "Work",
    "installed_release",
]

log = logging.getLogger(__name__)

VERIFIER_VERSION = "0.1.0"
MESSAGE_CHARS = 500
ROLLED_BACK = "STO-K010"


@dataclass(frozen=True, slots=True)
class Work:
    """One downloaded copy.

    Attributes:
        result: BOINC result name.
        workunit: workunit name, ``<task id>_<attempt>``.
        app: BOINC app under which it came: must be the admission's level.
        files: (open name, file) of every input; hostile content.
    """

    result: str
    workunit: str
    app: str
    files: tuple[tuple[str, Path], ...]

    def file(self, open_name: str) -> Path:
        """Return the file behind an open name, or raise ``STO-X011``."""
        for name, path in self.files:
            if name == open_name:
                return path
        raise TrustError("STO-X011", f"the workunit lacks its file {open_name!r}")

    def read(self, open_name: str) -> bytes:
        """Return a small file's bytes, bounded; raises ``STO-X011``."""
        path, bound = self.file(open_name), workdir.open_name_bound(open_name)
        try:
            with path.open("rb") as stream:
                data = stream.read(bound + 1)
        except OSError as error:
            raise TrustError("STO-X011", f"{open_name} cannot be read") from error
        if len(data) > bound:
            raise TrustError("STO-X011", f"{open_name} is larger than {bound} bytes")
        return data

    def blobs(self) -> tuple[Path, ...]:
        """Return the blob files in order; they are numbered without gaps."""
        names = {name for name, _ in self.files}
        count = sum(name.startswith("blob_") for name in names)
        return tuple(self.file(workdir.blob_name(index)) for index in range(count))


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


class RunnerJail(Protocol):
    """What the executor needs of `stoilo.sandbox.supervisor.Jail`."""

    def run(
        self,
        request: bytes,
        limits: RunLimits,
        wall_s: float | None = None,
        *,
        watch: Callable[[Exchange], object] | None = None,
    ) -> JailReport:
        """Run the job on `request` in a fresh jailed child; see `Jail.run`."""
        ...

    def close(self) -> None:
        """End the zygote."""
        ...


def installed_release() -> InstalledRelease:
    """Return what this package holds: levels and language layer."""
    return InstalledRelease(load_levels(), LANGUAGE_DIGEST)


def _task_jail(level: Level) -> RunnerJail:
    """Return a warm jail for tasks of `level`."""
    return Jail(level, TASK_JOB)


class VerifiedExecutor:
    """The real executor: release metadata, verifier, one warm jail a level.

    Args:
        root: the trusted TUF root metadata.
        state: this host's own directory, outside of what a project writes.
        host: what this volunteer allows; the installed flavors are found here.
        clock: s since 1970.
        jails: makes a jail for a level.
    """

    def __init__(
        self,
        root: bytes,
        state: Path,
        host: HostState,
        *,
        clock: Callable[[], float],
        jails: Callable[[Level], RunnerJail] = _task_jail,
    ) -> None:
        self._root = root
        self._state = state
        self._host = dataclasses.replace(host, flavors=installed_flavors())
        self._clock = clock
        self._make_jail = jails
        self._jails: dict[str, RunnerJail] = {}
        self._starting = threading.Lock()
        self._closed = False
        self._runs = Runs()
        self._trust: tuple[str, TrustedRelease] | None = None
        self._installed = installed_release()

    def execute(self, work: Work) -> bytes:
        """Return the result file's bytes; see `Executor`."""
        header = ResultHeader(
            format="stoilo-result/1",
            result=work.result,
            workunit=work.workunit,
            disposition=Disposition.REFUSED,
            verifier=VERIFIER_VERSION,
        )
        with self._runs.hold(work.result):
            try:
                task = self._verify(work)
                jail = self._jail(task.level)
            except PolicyRefusal as error:
                return _refuse(header, error, Disposition.NOT_FOR_THIS_HOST)
            except TrustError as error:
                return _refuse(header, error, Disposition.REFUSED)
            return self._run(task, jail, header)

    def cancel(self, result: str) -> None:
        """Kill the run of a copy; see `Executor`."""
        self._runs.cancel(result)

    def close(self) -> None:
        """End every run and every jail."""
        self._runs.close()
        with self._starting:
            for jail in self._jails.values():
                jail.close()
            self._jails.clear()
            self._closed = True

    def _verify(self, work: Work) -> VerifiedTask:
        """Return the task if it may run here and now."""
        now = int(self._clock())
        trust = self._load_trust(work.read(workdir.RELEASE), now)
        task_id, _, attempt = work.workunit.rpartition("_")
        bundle = TaskBundle(
            envelope=work.read(workdir.ADMISSION),
            proof=work.read(workdir.PROOF),
            task_id=task_id,
            attempt=int(attempt) if attempt.isascii() and attempt.isdigit() else 0,
            app_level=work.app,
            flavor="",
            task_module=work.file(workdir.TASK_MODULE),
            arguments=work.file(workdir.ARGUMENTS),
            blobs=work.blobs(),
        )
        return verify_bundle(bundle, trust, self._host, now)

    def _load_trust(self, pack: bytes, now: int) -> TrustedRelease:
        """Return the verified release: this pack's, or a newer one already known.

        Copies sent out before a refresh carry the older pack; they are judged by the
        newest release that this host has seen, as long as it has not expired.
        """
        digest = content_digest(pack)
        if self._trust and self._trust[0] == digest and now < self._trust[1].expires:
            return self._trust[1]
        newest = self._state / "release.pack"
        try:
            trust = self._load(pack, now)
        except TrustError as error:
            if error.code != ROLLED_BACK or not newest.exists():
                raise
            return self._load(newest.read_bytes(), now)
        replace_file(newest, pack)
        self._trust = (digest, trust)
        return trust

    def _load(self, pack: bytes, now: int) -> TrustedRelease:
        """Verify one pack up to the root."""
        return load_trust(
            parse_release_pack(pack),
            self._root,
            now,
            installed=self._installed,
            cache=self._state / "tuf",
        )

    def _jail(self, level: Level) -> RunnerJail:
        """Return the warm jail of `level`."""
        with self._starting:
            if self._closed:
                raise InternalError("STO-S008", "this executor is closed")
            if level.name not in self._jails:
                self._jails[level.name] = self._make_jail(level)
            return self._jails[level.name]

    def _run(self, task: VerifiedTask, jail: RunnerJail, header: ResultHeader) -> bytes:
        """Run a verified task and write its result file."""
        statement = task.admission.statement
        request = TaskRequest(
            source=task.task_module.decode(),
            entry=statement.entry,
            arguments=task.arguments,
            blobs=task.blobs,
            seed=statement.seed,
            now=statement.admitted_at,
            items=statement.map_items,
        )
        report = jail.run(
            request.encode(),
            task.limits,
            watch=functools.partial(self._runs.watch, header.result),
        )
        if statement.map_items:
            outcomes = read_items(report, statement.map_items)
        else:
            outcomes = (read_outcome(report),)
        frame = _frame(report, outcomes, items=statement.map_items)
        ending = _ending(report, outcomes)
        proven = task.admission.proven
        header = ResultHeader(
            format=header.format,
            result=header.result,
            workunit=header.workunit,
            disposition=Disposition.RAN,
            admission=task.admission.digest,
            attempt=statement.attempt,
            flavor=statement.flavor,
            verifier=header.verifier,
            layers=report.layers,
            checkpoint=f"{proven.size} {proven.root.hex()}",
            status=ending.status,
            code=ending.code,
            message="" if ending.layer is None else ending.error[:MESSAGE_CHARS],
            layer=ending.layer,
            limit=ending.limit,
        )
        return render_result(header, frame, report.output[: task.limits.output_bytes])


def _refuse(
    header: ResultHeader, error: StoiloError, disposition: Disposition
) -> bytes:
    """Return the result file of a copy that was not run."""
    log.info("%s: %s", header.result, error)
    return render_result(
        ResultHeader(
            format=header.format,
            result=header.result,
            workunit=header.workunit,
            disposition=disposition,
            verifier=header.verifier,
            code=error.code,
            message=error.message[:MESSAGE_CHARS],
        ),
        b"",
        b"",
    )


def installed_flavors() -> frozenset[str]:
    """Return the ids of the shipped flavors whose libraries are all installed here."""
    return frozenset(
        flavor.digest
        for flavor in shipped_flavors()
        if all(
            importlib.util.find_spec(module.partition(".")[0])
            for module in flavor.modules
        )
    )


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
    """Return what the jail wrote if it is readable, else our words for what happened."""
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
