"""What this host remembers of a project: the newest time, floors, the newest revocations.

Each is a small file in the host's own state directory, outside of what a project writes (I4).
It only ever rises, and is written durably before anything is decided by it: an older release or
statement, however fresh its signature, and a clock set back revive nothing that was withdrawn.
A damaged file refuses all work, since without it the host could be led back.
Source: signing-audit §3.6 (g).
"""

from __future__ import annotations

import fcntl
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.revocation import RevocationStatement
from stoilo.executor.verifier.installation import replace_file
from stoilo.executor.verifier.release.targets import TrustedRelease
from stoilo.executor.verifier.revocation import (
    SeenRevocations,
    newest_seen,
    open_revocations,
)
from stoilo.executor.verifier.workunit import Floors

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
        """Keep other processes of this host out."""
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
    """Return the higher floor of each part."""
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
