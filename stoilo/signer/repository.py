"""A release directory whose signing keys lie on this machine: python-tuf's `Repository`.

Published files never change, except ``timestamp.json``. Root comes first and the timestamp
last, so that a reader never meets metadata whose parts are missing.
Source: TUF specification 1.0.34 §3 to §5; expiries from signing-audit §1.5.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from securesystemslib.signer import CryptoSigner, Key
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    T,
    TargetFile,
    Targets,
    Timestamp,
)
from tuf.repository import AbortEdit, Repository
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.files import sync_directory, write_durably
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.trust import DEVELOPMENT_MARK, REHEARSAL_MARK
from stoilo.signer.key_files import write_private_file, write_public_file
from stoilo.signer.roles import role_limits



LIFETIMES: Final = {
    role: timedelta(days=role_limits(role).lifetime_days)
    for role in ("root", "targets", "snapshot", "timestamp")
}
"""How long each role's metadata lives; it is signed again at half of that."""

COPY_BYTES: Final = 1024 * 1024
KEPT_SNAPSHOTS: Final = 3
_NOTHING: Final[Mapping[str, TargetFile]] = {}
_KINDS: Final = {"root": Root, "snapshot": Snapshot, "timestamp": Timestamp}
_VERSIONED = re.compile(r"([0-9]+)\.([a-z]+)\.json")


@dataclass(frozen=True, slots=True)
class RoleKeys:
    """A role's signing keys and how many of them must sign."""

    keys: tuple[PrivateKey, ...]
    threshold: int

    def signers(self) -> list[CryptoSigner]:
        """Return securesystemslib's signers, one a key."""
        return [CryptoSigner(key.key) for key in self.keys]

    def public(self) -> list[Key]:
        """Return the public keys in TUF's form."""
        return [signer.public_key for signer in self.signers()]


@dataclass(frozen=True, slots=True)
class Delegation:
    """A role that targets delegates: name, keys, and the paths it may speak for."""

    name: str
    keys: RoleKeys
    path: str


class ReleaseRepository(Repository):
    """A release directory, edited by whoever holds `keys` of some of its roles.

    Args:
        directory: the release; `publishing` keeps other publishers out.
        keys: by role; all of a role's keys sign.
        now: Unix seconds; a whole life begins here.
    """

    def __init__(self, directory: Path, keys: Mapping[str, RoleKeys], now: int) -> None:
        self._directory = directory
        self._keys = keys
        self._now = now

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
        """Publish `md` one version up, with a whole life, signed by all of our keys."""
        md.signed.version += 1
        # A delegated role lives as long as targets does.
        md.signed.expires = self._time + LIFETIMES.get(role, LIFETIMES["targets"])
        # They were made over the version before.
        md.signatures.clear()
        for signer in self._keys[role].signers():
            md.sign(signer, append=True)
        file = _metadata_file(self._directory, role, md.signed.version)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_public_file(file, md.to_bytes())

    @property
    def targets_infos(self) -> dict[str, MetaFile]:
        """What a snapshot must name: every targets role, signed as root delegates it.

        Raises:
            TrustError: STO-K012 or STO-K014.
        """
        root = newest(self._directory, "root", Root)
        targets = newest(self._directory, "targets", Targets)
        if root is None or targets is None:
            raise TrustError("STO-K014", "the release has no root or no targets")
        owners: dict[str, Root | Targets] = {"targets": root.signed}
        delegations = targets.signed.delegations
        for name in (delegations.roles or {}) if delegations else {}:
            owners[name] = targets.signed
        found = {}
        for name, owner in owners.items():
            role = newest(self._directory, name, Targets)
            if role is None:
                raise TrustError("STO-K014", f"the release lacks its role {name}")
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
            raise TrustError("STO-K014", "the release has no snapshot")
        return self._info("snapshot", snapshot.signed.version)

    def is_fresh(self, role: str) -> bool:
        """Whether more than half of the life of a role's newest metadata remains."""
        life = LIFETIMES.get(role, LIFETIMES["targets"])
        return bool(self.open(role).signed.expires > self._time + life / 2)

    @property
    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._now, UTC)

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


def publish_root(
    directory: Path,
    roles: Mapping[str, RoleKeys],
    now: int,
    *,
    development: bool,
    rehearsal: bool = False,
) -> None:
    """Publish a root naming `roles`' keys, unless the newest is still fresh.

    Later versions are signed by the same root keys; changing those is a ceremony.
    """
    release = ReleaseRepository(directory, roles, now)
    with release.edit_root() as root:
        if root.version and release.is_fresh("root"):
            raise AbortEdit
        root.consistent_snapshot = True
        root.unrecognized_fields = {DEVELOPMENT_MARK: True} if development else {}
        if rehearsal:
            root.unrecognized_fields[REHEARSAL_MARK] = True
        root.keys.clear()
        for name, role in roles.items():
            root.roles[name].keyids.clear()
            root.roles[name].threshold = role.threshold
            for key in role.public():
                root.add_key(key, name)


def publish_targets(
    directory: Path,
    name: str,
    keys: RoleKeys,
    files: Mapping[str, bytes],
    now: int,
    *,
    delegations: Sequence[Delegation] = (),
    kept: Mapping[str, TargetFile] = _NOTHING,
) -> None:
    """Publish targets role `name` naming exactly `files` and `kept`, unless it does.

    Args:
        directory: the release.
        name: the role.
        keys: its keys; all of them sign.
        files: contents by target name; stored under their consistent-snapshot names.
        now: Unix seconds.
        delegations: the roles that this one delegates to.
        kept: what is named as well and already lies in the directory.
    """
    wanted = dict(kept) | {
        path: TargetFile.from_data(path, data, ["sha256"])
        for path, data in files.items()
    }
    delegated = _delegations(delegations)
    release = ReleaseRepository(directory, {name: keys}, now)
    with release.edit_targets(name) as role:
        same = (role.targets, role.delegations) == (wanted, delegated)
        # Nothing new to say, and nobody waits for a later end.
        if role.version and same and release.is_fresh(name):
            raise AbortEdit
        # Files before the metadata that names them.
        for path, data in files.items():
            file = _target_file(directory, path, content_digest(data))
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(file, data)
        role.targets, role.delegations = wanted, delegated


def refresh_online_metadata(directory: Path, online: PrivateKey, now: int) -> None:
    """Sign snapshot and timestamp again where targets changed or half their life is over.

    Refuses to name targets that the newest root's targets keys did not sign.

    Raises:
        TrustError: STO-K012 or STO-K014.
    """
    keys = RoleKeys((online,), 1)
    release = ReleaseRepository(directory, {"snapshot": keys, "timestamp": keys}, now)
    try:
        release.do_snapshot(force=not release.is_fresh("snapshot"))
        release.do_timestamp(force=not release.is_fresh("timestamp"))
    except ValueError as error:  # an older file came back, as from a backup
        raise TrustError("STO-K014", f"the release goes back: {error}") from error
    _drop_old_snapshots(directory, release.snapshot_info.version)


def newest(directory: Path, name: str, kind: type[T]) -> Metadata[T] | None:
    """Return the newest published metadata of role `name`, None when there is none.

    Raises:
        TrustError: STO-K013 for what cannot be read.
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


def newest_file(directory: Path, role: str, path: str) -> bytes | None:
    """Return the target at `path` that the newest metadata of `role` names, or None."""
    metadata = newest(directory, role, Targets)
    info = None if metadata is None else metadata.signed.targets.get(path)
    if info is None:
        return None
    try:
        data = _target_file(directory, path, info.hashes["sha256"]).read_bytes()
        info.verify_length_and_hashes(data)
    except (OSError, RepositoryError) as error:
        raise TrustError("STO-K014", f"target {path} is missing or damaged") from error
    return data


def store_target(directory: Path, path: str, source: Path) -> TargetFile:
    """Store the file `source` as target `path`, and return what metadata says of it.

    For files too large to be held in memory: name the result in `publish_targets`'
    ``kept``. The copy is durable and is not linked to `source`.
    """
    info = TargetFile.from_file(path, str(source), ["sha256"])
    file = _target_file(directory, path, info.hashes["sha256"])
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(file, checked_pieces(source, info.hashes["sha256"]))
    return info


def checked_pieces(source: Path, digest: str) -> Iterator[bytes]:
    """Yield a file's bytes to be copied; at its end raise ``STO-K056`` for another digest.

    The copy never gets its name then: who gives it one by its digest may trust names.
    """
    state = hashlib.sha256()
    with source.open("rb") as file:
        while piece := file.read(COPY_BYTES):
            state.update(piece)
            yield piece
    if state.hexdigest() != digest:
        raise TrustError("STO-K056", f"{source.name} changed while it was copied")


def _metadata_file(directory: Path, role: str, version: int) -> Path:
    name = "timestamp" if role == "timestamp" else f"{version}.{role}"
    return directory / "metadata" / f"{name}.json"


def _target_file(directory: Path, path: str, digest: str) -> Path:
    """Return where a target lies, by its consistent-snapshot name."""
    plain = directory / "targets" / path
    return plain.with_name(f"{digest}.{plain.name}")


def _delegations(rows: Sequence[Delegation]) -> Delegations | None:
    """Return TUF's form of `rows`, each terminating and bound to one path pattern."""
    if not rows:
        return None
    public = {row.name: {key.keyid: key for key in row.keys.public()} for row in rows}
    roles = {
        row.name: DelegatedRole(
            row.name,
            keyids=list(public[row.name]),
            threshold=row.keys.threshold,
            terminating=True,
            paths=[row.path],
        )
        for row in rows
    }
    return Delegations(
        {k: v for keys in public.values() for k, v in keys.items()}, roles
    )


def _drop_old_snapshots(directory: Path, version: int) -> None:
    """Remove snapshots that no reader can still be fetching."""
    for path in (directory / "metadata").glob("*.snapshot.json"):
        match = _VERSIONED.fullmatch(path.name)
        # A reader that has the last timestamp may still be fetching its
        # snapshot.
        if match and int(match[1]) <= version - KEPT_SNAPSHOTS:
            path.unlink(missing_ok=True)
    sync_directory(directory / "metadata")
