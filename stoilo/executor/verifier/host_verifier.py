"""May this copy run here and now? Release, memories, floors and verifier put together.

What the host remembers (newest release, time, revocations, floors) is read, raised and
written under one lock, because several tasks of one BOINC client start at once. Nothing
here runs a task; `stoilo-verifier --explain` stops after it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoilo.audit.format.proof import parse_proof
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.statement import MAX_LIFETIME_S
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.admission import verify_bundle
from stoilo.executor.verifier.installation import Built, installed_release, replace_file
from stoilo.executor.verifier.memory import (
    FLOORS_FILE,
    FloorMemory,
    RevocationMemory,
    TimeMemory,
)
from stoilo.executor.verifier.release.pack import parse_release_pack
from stoilo.executor.verifier.release.targets import TrustedRelease
from stoilo.executor.verifier.release.trust import load_trust
from stoilo.executor.verifier.release.tuf_client import ROLLBACK_CODES
from stoilo.executor.verifier.result import seen_checkpoint
from stoilo.executor.verifier.runtimes import Runtimes
from stoilo.executor.verifier.workunit import HostState, TaskBundle, VerifiedTask, Work

RELEASE_PACK: Final = "release.pack"
"""In the state directory: the newest release that this host has verified."""


@dataclass(frozen=True, slots=True)
class VerifiedWorkunit:
    """A copy that may run.

    Attributes:
        task: what was verified.
        trust: the release that it was verified by.
        checkpoint: of the log, that it rests on; see `seen_checkpoint`.
    """

    task: VerifiedTask
    trust: TrustedRelease
    checkpoint: str


@dataclass(frozen=True, slots=True)
class _Known:
    """A release that this process has verified: digest of its pack, and what it says."""

    digest: str
    trust: TrustedRelease


def newest_release(state: Path, built: Built, now: int) -> TrustedRelease:
    """Return the newest release that the verifiers of this computer have seen.

    Raises:
        TrustError: STO-F046 when there is none, else the release's codes.
    """
    try:
        pack = (state / RELEASE_PACK).read_bytes()
    except OSError as error:
        raise TrustError(
            "STO-F046",
            "this computer has not seen a release of the project yet",
            hint="let a task run first, or: stoilo volunteer self-check --project URL",
        ) from error
    return load_trust(
        parse_release_pack(pack),
        built.root_bytes(),
        now,
        installed=installed_release(),
        cache=state / "tuf",
        release_build=not built.development,
    )


class HostVerifier:
    """Judges copies one after the other; see `VerifiedExecutor` for the arguments.

    Raises:
        InternalError: a memory of this host is damaged (STO-A082, STO-F040) or its disk
            refuses (STO-X008).
    """

    def __init__(
        self,
        root: bytes,
        state: Path,
        host: HostState,
        *,
        clock: Callable[[], float],
        runtimes: Runtimes,
        release_build: bool = False,
    ) -> None:
        self._root = root
        self._state = state
        self._clock = clock
        self._runtimes = runtimes
        self._strict = release_build
        self._host = dataclasses.replace(host, platform=runtimes.platform)
        self._memory = TimeMemory(state)
        self._floors = FloorMemory(state / FLOORS_FILE, host.floors)
        self._revocations = RevocationMemory(state / "revocations.json")
        self._installed = installed_release()
        self._known: _Known | None = None

    def verify(self, work: Work) -> VerifiedWorkunit:
        """Return the task, if it may run here and now.

        Raises:
            TrustError: the release's codes and those of `verify_bundle`.
            PolicyRefusal: it is not for this host.
            InternalError: this machine's own trouble.
        """
        envelope = work.read(workunit.ADMISSION)
        pack = work.read(workunit.RELEASE)
        # A client starts several tasks at once, and each raises what this host
        # remembers.
        with self._alone():
            newest = self._memory.newest
            # A clock that was set back revives nothing.
            now = max(int(self._clock()), newest)
            trust = self._load_trust(pack, now)
            floors = self._floors.learn(trust)
            bundle = _bundle(work, envelope)
            seen = self._revocations.learn(bundle.revocations, trust)
            host = dataclasses.replace(
                self._host,
                newest_time=newest,
                revocations=seen,
                floors=floors,
                flavors=self._runtimes.flavors(trust),
            )
            task = verify_bundle(bundle, trust, host, now)
            # Only a task that passed everything teaches time: a refused one could come
            # from a thief.
            self._memory.learn(task.admission.proven.agreed_time)
        checkpoint = seen_checkpoint(parse_proof(bundle.proof).checkpoint)
        return VerifiedWorkunit(task, trust, checkpoint)

    def _load_trust(self, pack: bytes, now: int) -> TrustedRelease:
        """Return the verified release: this pack's, or a newer one already known.

        Copies sent out before a refresh carry the older pack; they are verified by the
        newest release that this host has seen. Expiry is verified by the day of the
        admission (`verify_bundle`); here only what no admission could be old enough for
        is refused, because nothing of the admission is read before its signature holds.
        """
        digest, oldest = content_digest(pack), now - MAX_LIFETIME_S
        known = self._known
        if known and known.digest == digest and oldest < known.trust.expires:
            return known.trust
        newest = self._state / RELEASE_PACK
        try:
            trust = self._load(pack, now, oldest)
        except TrustError as error:
            older = _read_pack(newest) if error.code in ROLLBACK_CODES else b""
            # Nothing newer is known here, so the pack itself is at fault.
            if not older:
                raise
            return self._load(older, now, oldest)
        # Kept for `--explain` and `--self-check`, and for tasks that bring an older
        # pack.
        if known is None or known.digest != digest:
            replace_file(newest, pack)
        self._known = _Known(digest, trust)
        return trust

    def _load(self, pack: bytes, now: int, oldest: int) -> TrustedRelease:
        """Verify one pack up to the root."""
        return load_trust(
            parse_release_pack(pack),
            self._root,
            now,
            installed=self._installed,
            cache=self._state / "tuf",
            reference=oldest,
            release_build=self._strict,
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other verifiers of this host out of its memories."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            lock = os.open(self._state / "lock", flags, 0o600)
        except OSError as error:
            raise InternalError(
                "STO-X008",
                f"the state directory cannot be used (errno {error.errno})",
                hint="make room on the disk, or make it writable",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _read_pack(path: Path) -> bytes:
    """Return the newest pack, empty without one; raises ``STO-X008``."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InternalError(
            "STO-X008",
            f"{path.name} cannot be read (errno {error.errno})",
            hint="look after the disk",
        ) from error


def _bundle(work: Work, envelope: bytes) -> TaskBundle:
    """Return the copy in the verifier's form."""
    task_id, _, attempt = work.workunit.rpartition("_")
    return TaskBundle(
        envelope=envelope,
        proof=work.read(workunit.PROOF),
        task_id=task_id,
        attempt=int(attempt) if attempt.isascii() and attempt.isdigit() else 0,
        app_level=work.app,
        flavor="",
        task_module=work.file(workunit.TASK_MODULE),
        arguments=work.file(workunit.ARGUMENTS),
        blobs=work.blobs(),
        revocations=work.read_if_there(workunit.REVOCATIONS),
    )
