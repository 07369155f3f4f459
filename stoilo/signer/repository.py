"""Writing a release's TUF metadata: roles are signed, versioned and published in order.

Files are never changed once published, except ``timestamp.json``. Root comes first and the
timestamp last, so that a reader never meets metadata whose parts are missing.
Source: TUF specification 1.0.34 §3 to §5; expiries from signing-audit §1.5.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from securesystemslib.signer import CryptoSigner, Key
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    T,
    TargetFile,
    Targets,
    Timestamp,
)

from stoilo.core.digests import content_digest
from stoilo.core.ed25519 import PrivateKey
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.release.trust import DEVELOPMENT_MARK, REHEARSAL_MARK
from stoilo.signer.keyfiles import (
    sync_directory,
    write_private_file,
    write_public_file,
)
from stoilo.signer.roles import role_limits

__all__ = [
    "LIFETIMES",
    "Delegation",
    "RoleKeys",
    "newest",
    "newest_file",
    "publish_root",
    "publish_targets",
    "publishing",
    "refresh_online_metadata",
    "store_target",
]

LIFETIMES: Final = {
    role: timedelta(days=role_limits(role).lifetime_days)
    for role in ("root", "targets", "snapshot", "timestamp")
}
"""How long each role's metadata lives; it is signed again at half of that."""

COPY_BYTES: Final = 1024 * 1024
KEPT_SNAPSHOTS: Final = 3
_NOTHING: Final[Mapping[str, TargetFile]] = {}
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
    current = newest(directory, "root", Root)
    if current is not None and _is_fresh(current.signed, "root", now):
        return
    marks = {DEVELOPMENT_MARK: True} if development else {}
    marks |= {REHEARSAL_MARK: True} if rehearsal else {}
    root = Root(
        version=1 if current is None else current.signed.version + 1,
        expires=_expiry("root", now),
        consistent_snapshot=True,
        unrecognized_fields=marks,
    )
    for name, role in roles.items():
        for key in role.public():
            root.add_key(key, name)
        root.roles[name].threshold = role.threshold
    _publish(directory, "root", Metadata(root), roles["root"])


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
    current = newest(directory, name, Targets)
    targets = dict(kept) | {
        path: TargetFile.from_data(path, data, ["sha256"])
        for path, data in files.items()
    }
    delegated = _delegations(delegations)
    if (
        current is not None
        and current.signed.targets == targets
        and current.signed.delegations == delegated
        and _is_fresh(current.signed, "targets", now)
    ):
        return
    for path, data in files.items():
        _write_target(directory, path, data)
    role = Targets(
        version=1 if current is None else current.signed.version + 1,
        expires=_expiry("targets", now),
        targets=targets,
        delegations=delegated,
    )
    _publish(directory, name, Metadata(role), keys)


def refresh_online_metadata(directory: Path, online: PrivateKey, now: int) -> None:
    """Sign snapshot and timestamp again where targets changed or half their life is over.

    Refuses to name targets that the newest root's targets keys did not sign.

    Raises:
        TrustError: STO-K012 or STO-K014.
    """
    keys = RoleKeys((online,), 1)
    meta = _verified_targets(directory)
    snapshot = newest(directory, "snapshot", Snapshot)
    if (
        snapshot is None
        or snapshot.signed.meta != meta
        or not _is_fresh(snapshot.signed, "snapshot", now)
        or not _is_certified(directory, "snapshot", snapshot)
    ):
        version = 1 if snapshot is None else snapshot.signed.version + 1
        fresh = Snapshot(version=version, expires=_expiry("snapshot", now), meta=meta)
        snapshot = Metadata(fresh)
        _publish(directory, "snapshot", snapshot, keys)
    _refresh_timestamp(directory, keys, snapshot.signed.version, now)
    _drop_old_snapshots(directory, snapshot.signed.version)


def newest(directory: Path, name: str, kind: type[T]) -> Metadata[T] | None:
    """Return the newest published metadata of role `name`, None when there is none."""
    versions = [
        int(match[1])
        for path in (directory / "metadata").glob("*.json")
        if (match := _VERSIONED.fullmatch(path.name)) and match[2] == name
    ]
    if not versions:
        return None
    return _read(directory / "metadata" / f"{max(versions)}.{name}.json", kind)


def store_target(directory: Path, path: str, source: Path) -> TargetFile:
    """Store the file `source` as target `path`, and return what metadata says of it.

    For files too large to be held in memory: name the result in `publish_targets`'
    ``kept``. The copy is durable and is not linked to `source`.
    """
    info = TargetFile.from_file(path, str(source), ["sha256"])
    plain = directory / "targets" / path
    file = plain.with_name(f"{info.hashes['sha256']}.{plain.name}")
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.new")
        with source.open("rb") as reader, temporary.open("wb") as writer:
            shutil.copyfileobj(reader, writer, COPY_BYTES)
            writer.flush()
            os.fsync(writer.fileno())
        with temporary.open("rb") as copied:
            info.verify_length_and_hashes(copied)
        temporary.replace(file)
        sync_directory(file.parent)
    return info


def newest_file(directory: Path, role: str, path: str) -> bytes | None:
    """Return the target at `path` that the newest metadata of `role` names, or None."""
    metadata = newest(directory, role, Targets)
    info = None if metadata is None else metadata.signed.targets.get(path)
    if info is None:
        return None
    plain = directory / "targets" / path
    try:
        data = plain.with_name(f"{info.hashes['sha256']}.{plain.name}").read_bytes()
        info.verify_length_and_hashes(data)
    except (OSError, RepositoryError) as error:
        raise TrustError("STO-K014", f"target {path} is missing or damaged") from error
    return data


def _read(path: Path, kind: type[T]) -> Metadata[T]:
    """Return metadata of role type `kind`; raises ``STO-K013``."""
    try:
        metadata = Metadata[T].from_bytes(path.read_bytes())
    except (RepositoryError, OSError) as error:
        raise TrustError("STO-K013", f"{path.name} cannot be read") from error
    if not isinstance(metadata.signed, kind):
        raise TrustError("STO-K013", f"{path.name} is metadata of another role")
    return metadata


def _verified_targets(directory: Path) -> dict[str, MetaFile]:
    """Return what a snapshot must name: every targets role, signed as delegated."""
    root = newest(directory, "root", Root)
    targets = newest(directory, "targets", Targets)
    if root is None or targets is None:
        raise TrustError("STO-K014", "the release has no root or no targets")
    meta = {"targets.json": _describe(directory, "targets", targets.signed.version)}
    try:
        root.signed.verify_delegate("targets", targets.signed_bytes, targets.signatures)
        delegations = targets.signed.delegations
        for name in (delegations.roles or {}) if delegations else {}:
            role = newest(directory, name, Targets)
            if role is None:
                raise TrustError("STO-K014", f"the release lacks its role {name}")
            targets.signed.verify_delegate(name, role.signed_bytes, role.signatures)
            meta[f"{name}.json"] = _describe(directory, name, role.signed.version)
    except RepositoryError as error:
        raise TrustError("STO-K012", f"too few signatures: {error}") from error
    return meta


def _is_certified(directory: Path, name: str, metadata: Metadata[T]) -> bool:
    """Whether the newest root's keys signed it; not so after these were replaced."""
    root = newest(directory, "root", Root)
    if root is None:
        return False
    try:
        root.signed.verify_delegate(name, metadata.signed_bytes, metadata.signatures)
    except RepositoryError:
        return False
    return True


def _refresh_timestamp(
    directory: Path, keys: RoleKeys, snapshot_version: int, now: int
) -> None:
    """Publish the timestamp for a snapshot, unless the present one still serves."""
    path = directory / "metadata" / "timestamp.json"
    current = _read(path, Timestamp) if path.exists() else None
    described = _describe(directory, "snapshot", snapshot_version)
    if (
        current is not None
        and current.signed.snapshot_meta == described
        and _is_fresh(current.signed, "timestamp", now)
        and _is_certified(directory, "timestamp", current)
    ):
        return
    timestamp = Timestamp(
        version=1 if current is None else current.signed.version + 1,
        expires=_expiry("timestamp", now),
        snapshot_meta=described,
    )
    metadata = Metadata(timestamp)
    for signer in keys.signers():
        metadata.sign(signer, append=True)
    write_public_file(path, metadata.to_bytes())


def _describe(directory: Path, name: str, version: int) -> MetaFile:
    """Return what snapshot or timestamp say of a role: version, length and hash."""
    data = (directory / "metadata" / f"{version}.{name}.json").read_bytes()
    return MetaFile(version, len(data), {"sha256": str(content_digest(data))})


def _publish(directory: Path, name: str, metadata: Metadata[T], keys: RoleKeys) -> None:
    """Sign with every key of the role and write ``<version>.<name>.json``."""
    for signer in keys.signers():
        metadata.sign(signer, append=True)
    file = directory / "metadata" / f"{metadata.signed.version}.{name}.json"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_public_file(file, metadata.to_bytes())


def _write_target(directory: Path, path: str, data: bytes) -> None:
    """Store a target under its consistent-snapshot name."""
    plain = directory / "targets" / path
    file = plain.with_name(f"{content_digest(data)}.{plain.name}")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private_file(file, data)


def _delegations(rows: Sequence[Delegation]) -> Delegations | None:
    """Return TUF's form of `rows`, each terminating and bound to one path pattern."""
    if not rows:
        return None
    keys: dict[str, Key] = {}
    roles: dict[str, DelegatedRole] = {}
    for row in rows:
        public = {key.keyid: key for key in row.keys.public()}
        keys.update(public)
        roles[row.name] = DelegatedRole(
            row.name,
            keyids=list(public),
            threshold=row.keys.threshold,
            terminating=True,
            paths=[row.path],
        )
    return Delegations(keys, roles)


def _drop_old_snapshots(directory: Path, version: int) -> None:
    """Remove snapshots that no reader can still be fetching."""
    for path in (directory / "metadata").glob("*.snapshot.json"):
        match = _VERSIONED.fullmatch(path.name)
        if match and int(match[1]) <= version - KEPT_SNAPSHOTS:
            path.unlink(missing_ok=True)
    sync_directory(directory / "metadata")


def _is_fresh(signed: Signed, role: str, now: int) -> bool:
    """Whether more than half of the role's life remains."""
    return signed.expires > datetime.fromtimestamp(now, UTC) + LIFETIMES[role] / 2


def _expiry(role: str, now: int) -> datetime:
    """Return when metadata signed now ends."""
    return datetime.fromtimestamp(now, UTC) + LIFETIMES[role]
