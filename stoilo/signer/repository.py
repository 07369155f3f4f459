"""A release directory: its newest metadata, and what the server's online key signs of it.

Published files never change, except ``timestamp.json``, which is written last, so that a
reader never meets metadata whose parts are missing. What people sign gets here by
`stoilo.signer.ceremony.publication`; snapshot and timestamp through python-tuf's
`Repository`, which knows when they are due.
Source: TUF specification 1.0.34 §3 to §5; expiries from signing-audit §1.5.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    T,
    Targets,
    Timestamp,
)
from tuf.repository import Repository

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.files import sync_directory, write_durably
from stoilo.core.signatures import PrivateKey
from stoilo.signer.roles import role_limits

COPY_BYTES: Final = 1024 * 1024
KEPT_SNAPSHOTS: Final = 3
_KINDS: Final = {"root": Root, "snapshot": Snapshot, "timestamp": Timestamp}
_VERSIONED = re.compile(r"([0-9]+)\.([a-z]+)\.json")


class ReleaseRepository(Repository):
    """The online half of a release directory, edited by whoever holds its `key`.

    Args:
        directory: the release; `publishing` keeps other publishers out.
        key: of snapshot and timestamp.
        now: Unix seconds; a whole life begins here.
    """

    def __init__(self, directory: Path, key: PrivateKey, now: int) -> None:
        self._directory = directory
        self._signer = CryptoSigner(key.key)
        self._time = datetime.fromtimestamp(now, UTC)

    def open(self, role: str) -> Metadata[Any]:
        """Return a role's newest metadata, or an empty one to begin with."""
        kind: Any = _KINDS.get(role, Targets)
        metadata: Metadata[Any] | None = newest(self._directory, role, kind)
        if metadata is None:
            metadata = Metadata(kind())
            metadata.signed.version = 0  # `close` makes it 1
        # What a replaced online key signed may be a thief's: only its version counts, so
        # that the next one is above it.
        if role in {"snapshot", "timestamp"} and not self._is_certified(role, metadata):
            if role == "snapshot":
                metadata.signed.meta = {}
            else:
                metadata.signed.snapshot_meta = self.snapshot_info
        return metadata

    def close(self, role: str, md: Metadata[Any]) -> None:
        """Publish `md` one version up, with a whole life, signed by our key."""
        md.signed.version += 1
        md.signed.expires = self._time + _lifetime(role)
        # They were made over the version before.
        md.signatures.clear()
        md.sign(self._signer)
        file = _metadata_file(self._directory, role, md.signed.version)
        write_durably(file, md.to_bytes(), mode=0o644)

    @property
    def targets_infos(self) -> dict[str, MetaFile]:
        """What a snapshot must name: every targets role, signed as root delegates it.

        Raises ``STO-K012`` or ``STO-K013``.
        """
        root = newest(self._directory, "root", Root)
        targets = newest(self._directory, "targets", Targets)
        if root is None or targets is None:
            raise TrustError("STO-K013", "the release has no root or no targets")
        owners: dict[str, Root | Targets] = {"targets": root.signed}
        delegations = targets.signed.delegations
        for name in (delegations.roles or {}) if delegations else {}:
            owners[name] = targets.signed
        found = {}
        for name, owner in owners.items():
            role = newest(self._directory, name, Targets)
            if role is None:
                raise TrustError("STO-K013", f"the release lacks its role {name}")
            try:
                owner.verify_delegate(name, role.signed_bytes, role.signatures)
            except RepositoryError as error:
                raise TrustError("STO-K012", f"too few signatures: {error}") from error
            found[f"{name}.json"] = self._info(name, role.signed.version)
        return found

    @property
    def snapshot_info(self) -> MetaFile:
        """What the timestamp must name."""
        snapshot = newest(self._directory, "snapshot", Snapshot)
        if snapshot is None:
            raise TrustError("STO-K013", "the release has no snapshot")
        return self._info("snapshot", snapshot.signed.version)

    def is_fresh(self, role: str) -> bool:
        """Whether more than half of the life of a role's newest metadata remains."""
        return bool(self.open(role).signed.expires > self._time + _lifetime(role) / 2)

    def _is_certified(self, role: str, metadata: Metadata[Any]) -> bool:
        root = newest(self._directory, "root", Root)
        if root is None:
            return False
        try:
            root.signed.verify_delegate(
                role, metadata.signed_bytes, metadata.signatures
            )
        except RepositoryError:
            return False
        return True

    def _info(self, role: str, version: int) -> MetaFile:
        data = _metadata_file(self._directory, role, version).read_bytes()
        return MetaFile(version, len(data), {"sha256": str(content_digest(data))})


@contextmanager
def publishing(directory: Path) -> Iterator[None]:
    """Keep other publishers of this release out; not for use within itself."""
    with (directory / "state" / "publishing").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def refresh_online_metadata(directory: Path, online: PrivateKey, now: int) -> None:
    """Sign snapshot and timestamp again where targets changed or half their life is over.

    Refuses to name targets that the newest root's targets keys did not sign.

    Raises ``STO-K012`` or ``STO-K013``.
    """
    release = ReleaseRepository(directory, online, now)
    try:
        release.do_snapshot(force=not release.is_fresh("snapshot"))
        release.do_timestamp(force=not release.is_fresh("timestamp"))
    except ValueError as error:  # an older file came back, as from a backup
        raise TrustError("STO-K013", f"the release goes back: {error}") from error
    _drop_old_snapshots(directory, release.snapshot_info.version)


def newest(directory: Path, name: str, kind: type[T]) -> Metadata[T] | None:
    """Return the newest published metadata of role `name`, None when there is none.

    Raises ``STO-K013`` for what cannot be read.
    """
    versions = [
        int(match[1])
        for path in (directory / "metadata").glob("*.json")
        if (match := _VERSIONED.fullmatch(path.name)) and match[2] == name
    ]
    path = _metadata_file(directory, name, max(versions, default=0))
    if not path.exists():
        return None
    try:
        metadata = Metadata[T].from_bytes(path.read_bytes())
    except (RepositoryError, OSError) as error:
        raise TrustError("STO-K013", f"{path.name} cannot be read") from error
    if not isinstance(metadata.signed, kind):
        raise TrustError("STO-K013", f"{path.name} is metadata of another role")
    return metadata


def newest_signed(directory: Path) -> Iterator[tuple[str, Signed]]:
    """Yield what the newest metadata of each role says, verified or not.

    A publication that stopped half way must not look like a release that has ended.
    Raises ``STO-K013`` for what cannot be read.
    """
    targets = newest(directory, "targets", Targets)
    delegations = None if targets is None else targets.signed.delegations
    named = (delegations.roles or {}) if delegations else {}
    for role in ("root", "targets", *named, "snapshot", "timestamp"):
        kind: Any = _KINDS.get(role, Targets)
        metadata = newest(directory, role, kind)
        if metadata is not None:
            yield role, metadata.signed


class DirectoryWriter:
    """Writes files that several people come to read, durably, each replaced as a whole.

    Args:
        directory: a release's, or a ceremony's folder.
        file_mode: of new files; None: as the umask says, on media that may know none.
        folder_mode: of new folders.
    """

    def __init__(
        self, directory: Path, *, file_mode: int | None, folder_mode: int
    ) -> None:
        self._directory = directory
        self._file_mode = file_mode
        self._folder_mode = folder_mode

    def write(self, name: str, content: bytes | Path) -> None:
        """Write one file, unless it is there already.

        A file's content is copied under a name that begins with its digest, and checked
        against that meanwhile; raises ``STO-K050``.
        """
        path = self._directory / name
        if isinstance(content, bytes):
            if not (path.is_file() and path.read_bytes() == content):
                self._put(path, content)
        # One that is there is whole: it got its name, its digest, at the end.
        elif not (path.is_file() and path.stat().st_size == content.stat().st_size):
            self._put(path, _checked_pieces(content, path.name.partition(".")[0]))

    def below(self, folder: str) -> tuple[str, ...]:
        """Return the names of all files below `folder`."""
        paths = (self._directory / folder).rglob("*")
        return tuple(
            path.relative_to(self._directory).as_posix()
            for path in sorted(paths)
            if path.is_file()
        )

    def remove(self, name: str) -> None:
        """Remove one file, and its folders when nothing else is in them."""
        path = self._directory / name
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._directory or any(folder.iterdir()):
                sync_directory(folder)
                break
            folder.rmdir()

    def _put(self, path: Path, data: bytes | Iterable[bytes]) -> None:
        for below in reversed(path.relative_to(self._directory).parents):
            folder = self._directory / below
            if not folder.is_dir():
                folder.mkdir(mode=self._folder_mode)
                sync_directory(folder.parent)
        write_durably(path, data, mode=self._file_mode)
        if self._file_mode is None:
            with contextlib.suppress(OSError):  # some sticks know no modes
                path.chmod(0o644)


def release_writer(directory: Path, *, public: bool) -> DirectoryWriter:
    """Return the writer of a release; `public`: every user of this machine may read it."""
    return DirectoryWriter(
        directory,
        file_mode=0o644 if public else 0o600,
        folder_mode=0o755 if public else 0o700,
    )


def _checked_pieces(source: Path, digest: str) -> Iterator[bytes]:
    """Yield a file's bytes to be copied; at its end raise ``STO-K050`` for another digest.

    The copy never gets its name then: who gives it one by its digest may trust names.
    """
    state = hashlib.sha256()
    with source.open("rb") as file:
        while piece := file.read(COPY_BYTES):
            state.update(piece)
            yield piece
    if state.hexdigest() != digest:
        raise TrustError("STO-K050", f"{source.name} changed while it was copied")


def _metadata_file(directory: Path, role: str, version: int) -> Path:
    name = "timestamp" if role == "timestamp" else f"{version}.{role}"
    return directory / "metadata" / f"{name}.json"


def _lifetime(role: str) -> timedelta:
    return timedelta(days=role_limits(role).lifetime_days)


def _drop_old_snapshots(directory: Path, version: int) -> None:
    for path in (directory / "metadata").glob("*.snapshot.json"):
        match = _VERSIONED.fullmatch(path.name)
        # A reader that has the last timestamp may still be fetching its snapshot.
        if match and int(match[1]) <= version - KEPT_SNAPSHOTS:
            path.unlink(missing_ok=True)
    sync_directory(directory / "metadata")
