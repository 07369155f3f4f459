"""May this copy run here and now? Release, memories, floors and verifier put together.

What the host remembers (newest release, time, revocations, floors) is read, raised and
written under one lock, because several tasks of one BOINC client start at once. Nothing
here runs a task; `stoilo-verifier --explain` stops after it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from stoilo.audit.format.proof import parse_proof
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.statement import MAX_LIFETIME_S, RevocationStatement
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.admission import verify_bundle
from stoilo.executor.verifier.installation import Built, installed_release, replace_file
from stoilo.executor.verifier.result import seen_checkpoint
from stoilo.executor.verifier.revocation import (
    SeenRevocations,
    newest_seen,
    open_revocations,
)
from stoilo.executor.verifier.runtimes import Runtimes
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import load_trust, parse_release_pack
from stoilo.executor.verifier.tuf_client import ROLLBACK_CODES
from stoilo.executor.verifier.workunit import (
    Floors,
    HostState,
    TaskBundle,
    VerifiedTask,
    Work,
)

TIME_FILE: Final = "newest-time"
MAX_FILE_BYTES: Final = 64
_LINE = re.compile(rb"stoilo-time/v1 (0|[1-9][0-9]{0,15})\n")


class TimeMemory:
    """The newest verified time, in a file; thread-safe, and safe beside other processes.

    Args:
        directory: this host's own, made if needed.

    Raises:
        TrustError: ``STO-L118`` when the file is not one that was written here.
        InternalError: ``STO-X008`` when it cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _disk(error) from error
        self._path = directory / TIME_FILE
        self._guard = threading.Lock()
        self._newest = self._read()

    @property
    def newest(self) -> int:
        """POSIX seconds of the newest cosignature verified here, 0 before the first."""
        return self._newest

    def learn(self, time: int | None) -> None:
        """Remember a *verified* cosignature's time, durably, if it is newer.

        Args:
            time: POSIX s, of an admission that passed every check; None is ignored.
        """
        if time is None or time <= self._newest:
            return
        # Another verifier of this host may have learned more since we read the file.
        with self._guard, self._locked():
            newest = max(self._read(), time)
            replace_file(self._path, b"stoilo-time/v1 %d\n" % newest)
            self._newest = newest

    def _read(self) -> int:
        try:
            with self._path.open("rb") as file:
                text = file.read(MAX_FILE_BYTES)
        # The first task of a project on this computer.
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _disk(error) from error
        match = _LINE.fullmatch(text)
        if match is None:
            raise TrustError(
                "STO-L118",
                f"{TIME_FILE} is damaged",
                hint="look at it in the project's state directory",
            )
        return int(match[1])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            lock = self._path.with_suffix(".lock").open("ab")
        except OSError as error:
            raise _disk(error) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _disk(error: OSError) -> InternalError:
    """Return ``STO-X008``."""
    return InternalError(
        "STO-X008",
        f"{TIME_FILE} or its directory cannot be used (errno {error.errno})",
        hint="make room on the disk, or make it writable",
    )


FLOORS_FILE = "floors.json"
MAX_FLOORS_BYTES = 64 * 1024
MOST_SERIALS = 256

MOST = 2**53
"""Highest version that is remembered: one key may raise the revocation role's at will."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class _FloorsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is on the disk."""

    format: Literal["stoilo-floors/1"]
    root: _Count
    targets: _Count
    epoch: _Count
    log_size: _Count
    verifier: _Count
    serials: Annotated[dict[str, _Count], msgspec.Meta(max_length=MOST_SERIALS)]
    revocation: _Count = 0


def raise_floors(one: Floors, other: Floors) -> Floors:
    """Return the higher of each floor."""
    return Floors(
        root=max(one.root, other.root),
        targets=max(one.targets, other.targets),
        epoch=max(one.epoch, other.epoch),
        log_size=max(one.log_size, other.log_size),
        verifier=max(one.verifier, other.verifier),
        serials=_highest(one.serials, other.serials),
        revocation=max(one.revocation, other.revocation),
    )


class FloorMemory:
    """The floors in `path`, never below those compiled in; any thread of one process.

    Raises:
        InternalError: STO-F040 the file is damaged: without it the host could be led back
            to what a release has withdrawn.
    """

    def __init__(self, path: Path, compiled: Floors) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._floors = raise_floors(compiled, self._load())

    @property
    def floors(self) -> Floors:
        """The floors in force."""
        return self._floors

    def learn(self, trust: TrustedRelease) -> Floors:
        """Raise the floors to what a *verified* release says, durably; returns them.

        Raises:
            InternalError: STO-F040, STO-X008 the disk refuses.
        """
        said = Floors(
            root=trust.root_version,
            targets=trust.targets_version,
            epoch=trust.min_epoch,
            verifier=trust.floors.verifier,
            serials=trust.floors.serials,
            # Capped, or one stolen key could raise the floor above every honest release
            # for ever.
            revocation=min(trust.revocation_version, MOST),
        )
        with self._lock:
            raised = raise_floors(raise_floors(self._floors, self._load()), said)
            if raised != self._floors:
                replace_file(self._path, _render(raised))
                self._floors = raised
            return raised

    def _load(self) -> Floors:
        """Return what the disk holds; the lowest floors when it holds nothing."""
        try:
            with self._path.open("rb") as file:
                row = msgspec.json.decode(
                    file.read(MAX_FLOORS_BYTES + 1), type=_FloorsFile
                )
        except FileNotFoundError:
            return Floors()
        except (OSError, msgspec.MsgspecError, UnicodeError) as error:
            raise InternalError(
                "STO-F040",
                "this host's memory of version floors cannot be read",
                hint=f"look at {self._path.name} in the state directory of the project",
            ) from error
        return Floors(
            root=row.root,
            targets=row.targets,
            epoch=row.epoch,
            log_size=row.log_size,
            verifier=row.verifier,
            serials=row.serials,
            revocation=row.revocation,
        )


def _render(floors: Floors) -> bytes:
    """Return the file's bytes."""
    return msgspec.json.encode(
        _FloorsFile(
            format="stoilo-floors/1",
            root=floors.root,
            targets=floors.targets,
            epoch=floors.epoch,
            log_size=floors.log_size,
            verifier=floors.verifier,
            serials=dict(floors.serials),
            revocation=floors.revocation,
        ),
        order="sorted",
    )


def _highest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {part: max(one.get(part, 0), other.get(part, 0)) for part in {*one, *other}}


MAX_SEEN_BYTES = 128 * 1024


class _RevocationsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is on the disk."""

    statement: RevocationStatement
    keys: Annotated[tuple[str, ...], msgspec.Meta(max_length=8)]


class RevocationMemory:
    """The memory in `path`; one process, any thread."""

    def __init__(self, path: Path) -> None:
        """Remember where; the file is read when first needed."""
        self._path = path
        self._lock = threading.Lock()
        self._seen: SeenRevocations | None = None
        self._read = False
        self._known: tuple[str, int] | None = None

    def learn(self, data: bytes, trust: TrustedRelease) -> SeenRevocations:
        """Return the newest statement seen, a workunit's file (hostile) included.

        Raises:
            TrustError: the codes of `open_revocations` and `newest_seen`.
            InternalError: STO-A082 the memory is damaged, STO-X008 the disk refuses.
        """
        known = (content_digest(data), trust.timestamp_version)
        with self._lock:
            seen = self._load()
            # A batch of tasks carries one statement: its signatures are not verified
            # again.
            if seen is not None and known == self._known:
                return seen
            newest = newest_seen(seen, open_revocations(data, trust).statement, trust)
            if newest != seen:
                file = _RevocationsFile(newest.statement, newest.keys)
                replace_file(self._path, msgspec.json.encode(file))
            self._seen, self._known = newest, known
            return newest

    def _load(self) -> SeenRevocations | None:
        """Return what the disk holds; raises ``STO-A082``."""
        if self._read:
            return self._seen
        try:
            with self._path.open("rb") as file:
                row = msgspec.json.decode(
                    file.read(MAX_SEEN_BYTES), type=_RevocationsFile
                )
            self._seen = SeenRevocations(row.statement, row.keys)
        except FileNotFoundError:
            self._seen = None
        except (OSError, msgspec.MsgspecError, TrustError) as error:
            raise InternalError(
                "STO-A082",
                "this host's memory of revocations cannot be read",
                hint="attach to the project anew, in an empty state directory",
            ) from error
        self._read = True
        return self._seen


RELEASE_PACK: Final = "release.pack"
"""In the state directory: the newest release that this host has verified."""


@dataclass(frozen=True, slots=True)
class VerifiedWorkunit:
    """A copy that may run."""

    task: VerifiedTask  # what was verified
    trust: TrustedRelease  # the release that it was verified by
    checkpoint: str  # of the log, that it rests on; see `seen_checkpoint`


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
