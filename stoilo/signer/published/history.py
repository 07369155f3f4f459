"""Every metadata file of a published release, verified from its first root on.

Stricter than a TUF client: each file must be in the one spelling that was signed, every
signature in it must count, offline roles must be there in every version since the first,
and nothing may lie beside them. So a changed byte shows wherever it is. What a volunteer's
verifier checks besides (expiry, rollback, delegations) is checked by that very verifier in
`stoilo.signer.published.verify`.
Source: TUF specification 1.0.34 §5.3 to §5.6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    Key,
    Metadata,
    Root,
    Snapshot,
    Targets,
    Timestamp,
)

from stoilo.core.errors import TrustError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.signer.ceremony.metadata import check_shape

MAX_VERSIONS: Final = 1024
KEPT_SNAPSHOTS: Final = 3
_TIMESTAMP: Final = "metadata/timestamp.json"
_FILE = re.compile(r"metadata/([1-9][0-9]{0,8})\.([a-z][a-z-]{0,31})\.json")
_T = TypeVar("_T", Root, Snapshot, Targets, Timestamp)

Owner = Root | Targets
Reader = Callable[[str, int], bytes | None]
"""Reads one small file of a release, at most so many bytes; None when it is not there."""


@dataclass(frozen=True, slots=True)
class RoleVersion:
    """One verified metadata file.

    Attributes:
        role: ``root``, ``targets``, …
        version: as its name and its contents say.
        data: the file's bytes.
        signed: what was signed.
        threshold: how many keys had to sign.
        signers: the keys that did.
    """

    role: str
    version: int
    data: bytes
    signed: Root | Snapshot | Targets | Timestamp
    threshold: int
    signers: tuple[Key, ...]

    @property
    def path(self) -> str:
        """The file's name in the release."""
        if self.role == "timestamp":
            return _TIMESTAMP
        return f"metadata/{self.version}.{self.role}.json"


@dataclass(frozen=True, slots=True)
class History:
    """All metadata of a release, oldest first within a role.

    Attributes:
        roots: every root.
        targets: every version of the offline targets role.
        delegated: every version of every role that targets delegates or delegated.
        online: the timestamp, then the snapshots from the one in force downwards.
    """

    roots: tuple[RoleVersion, ...]
    targets: tuple[RoleVersion, ...]
    delegated: tuple[RoleVersion, ...]
    online: tuple[RoleVersion, ...]

    def all(self) -> Iterator[RoleVersion]:
        """Yield every file."""
        yield from (*self.roots, *self.targets, *self.delegated, *self.online)

    def newest(self) -> Iterator[RoleVersion]:
        """Yield the file in force of every role: root, targets, delegated, online ones."""
        current = _targets(self.targets[-1])
        names = current.delegations.roles if current.delegations else {}
        last = {one.role: one for one in self.delegated}
        yield from (self.roots[-1], self.targets[-1])
        yield from (last[name] for name in names or {})
        yield from self.online[:2]


def read_history(
    read: Reader, names: frozenset[str] | None, root: bytes | None
) -> History:
    """Read and verify all metadata.

    Args:
        read: returns a file by name, None when it is not there.
        names: every file of the release; None where they cannot be listed.
        root: a root that the caller trusts; None: the first one is only reported.

    Raises:
        UsageError: STO-K079 when there is no root at all.
        TrustError: STO-K012 for a root or role that is not signed as it must be,
            STO-K013, STO-K014, STO-K078.
    """
    roots = _read_roots(read)
    if root is not None:
        _check_given(roots, root)
    listed = _listed(names or frozenset())
    timestamp = _read_timestamp(read, roots)
    number = _as(timestamp, Timestamp).snapshot_meta.version
    snapshots = list(
        _snapshots(read, number, listed, roots, everything=names is not None)
    )
    versions = {
        name.removesuffix(".json"): meta.version
        for name, meta in _as(snapshots[0], Snapshot).meta.items()
    }
    targets = _all_versions(read, "targets", versions, roots)
    current = _targets(targets[-1])
    in_force = set((current.delegations.roles if current.delegations else None) or {})
    # A role that the snapshot leaves out could be held back without being missed.
    if versions.keys() != {"targets", *in_force}:
        raise TrustError("STO-K013", "the snapshot names other roles than targets does")
    delegated: list[RoleVersion] = []
    for role in sorted(in_force | _former_roles(targets) & listed.keys()):
        known = versions if role in in_force else {role: max(listed[role])}
        delegated += _all_versions(
            read, role, known, targets, former=role not in in_force
        )
    return History(roots, tuple(targets), tuple(delegated), (timestamp, *snapshots))


def _read_roots(read: Reader) -> tuple[RoleVersion, ...]:
    """Return every root, each signed by its predecessor's keys and its own."""
    roots: list[RoleVersion] = []
    while len(roots) < MAX_VERSIONS:
        version = len(roots) + 1
        name = f"metadata/{version}.root.json"
        data = read(name, BOUNDS.metadata_bytes)
        if data is None:
            break
        metadata = _open(name, data, Root, version)
        owners: list[Owner] = [_as(one, Root) for one in roots[-1:]]
        roots.append(_verified("root", metadata, data, [*owners, metadata.signed]))
    if not roots:
        raise UsageError(
            "STO-K079",
            "there is no release here: metadata/1.root.json is missing",
            hint="name a release directory, a server's data directory or its /release URL",
        )
    return tuple(roots)


def _check_given(roots: tuple[RoleVersion, ...], given: bytes) -> None:
    """Refuse roots that the caller's own is not one of."""
    metadata = _open("the given root", given, Root, 0)
    version = metadata.signed.version
    if version > len(roots) or roots[version - 1].data != given:
        raise TrustError(
            "STO-K012",
            f"the release's root {version} is not the root that was given",
            hint="compare where you got the root from; this may be another project",
        )


def _snapshots(
    read: Reader,
    number: int,
    listed: dict[str, frozenset[int]],
    roots: tuple[RoleVersion, ...],
    *,
    everything: bool,
) -> Iterator[RoleVersion]:
    """Yield the snapshot in force, then the older ones that are kept beside it."""
    yield _read_snapshot(read, number, roots[-1:])
    if not everything:
        return
    ids = {tuple(sorted(_as(one, Root).roles["snapshot"].keyids)) for one in roots}
    kept = listed.get("snapshot", frozenset()) - {number}
    if len(ids) == 1:  # after a change of keys, versions need not follow on each other
        kept |= frozenset(range(max(1, number - KEPT_SNAPSHOTS + 1), number))
    for version in sorted(kept, reverse=True):
        if version > number and len(ids) == 1:
            raise TrustError(
                "STO-K078", f"snapshot {version} is newer than the release"
            )
        yield _read_snapshot(read, version, roots)


def _read_timestamp(read: Reader, roots: tuple[RoleVersion, ...]) -> RoleVersion:
    """Return the timestamp, signed as the newest root says."""
    data = _present(read, _TIMESTAMP)
    return _by_any("timestamp", _open(_TIMESTAMP, data, Timestamp, 0), data, roots[-1:])


def _read_snapshot(
    read: Reader, version: int, roots: tuple[RoleVersion, ...]
) -> RoleVersion:
    """Return a snapshot, signed as one of `roots` says."""
    name = f"metadata/{version}.snapshot.json"
    data = _present(read, name)
    return _by_any("snapshot", _open(name, data, Snapshot, version), data, roots)


def _present(read: Reader, name: str) -> bytes:
    """Return metadata file `name`, or raise ``STO-K014``."""
    data = read(name, BOUNDS.metadata_bytes)
    if data is None:
        raise TrustError("STO-K014", f"the release lacks {name}")
    return data


def _all_versions(
    read: Reader,
    role: str,
    versions: dict[str, int],
    owners: Iterable[RoleVersion],
    *,
    former: bool = False,
) -> list[RoleVersion]:
    """Return versions 1 to the newest of an offline role, each signed as it had to be."""
    owners = tuple(owners)
    last = versions.get(role, 0)
    if not 1 <= last <= MAX_VERSIONS:
        raise TrustError("STO-K014", f"the release lacks its role {role}")
    found = []
    for version in range(1, last + 1):
        name = f"metadata/{version}.{role}.json"
        data = _present(read, name)
        metadata = _open(name, data, Targets, version)
        # The one in force answers to the newest owner, older ones to any
        # before.
        allowed = owners[-1:] if version == last and not former else owners
        found.append(_by_any(role, metadata, data, allowed))
    return found


def _by_any(
    role: str,
    metadata: Metadata[Snapshot] | Metadata[Timestamp] | Metadata[Targets],
    data: bytes,
    owners: Iterable[RoleVersion],
) -> RoleVersion:
    """Return the file, verified by the newest of `owners` whose keys signed it."""
    refusal = TrustError("STO-K012", f"nobody may sign {role}")
    for owner in reversed(tuple(owners)):
        signed = owner.signed
        if isinstance(signed, Root | Targets):
            try:
                return _verified(role, metadata, data, [signed])
            except TrustError as error:
                refusal = error
    raise refusal


def _verified(
    role: str,
    metadata: Metadata[Root]
    | Metadata[Snapshot]
    | Metadata[Timestamp]
    | Metadata[Targets],
    data: bytes,
    owners: list[Owner],
) -> RoleVersion:
    """Return the file once every one of `owners` has its threshold of signatures."""
    # Every signature must be by one of their keys: what does not count does not belong.
    name = f"{metadata.signed.version}.{role}.json"
    signers: dict[str, Key] = {}
    threshold = 0
    for owner in owners:
        try:
            result = owner.get_verification_result(
                role, metadata.signed_bytes, metadata.signatures
            )
        except (RepositoryError, ValueError) as error:
            raise TrustError("STO-K012", f"nobody may sign {name}") from error
        if not result.verified:
            raise TrustError(
                "STO-K012",
                f"{name} is signed by {len(result.signed)} of the "
                f"{result.threshold} keys that it needs",
            )
        signers |= result.signed
        threshold = result.threshold
    # Readers ignore such a one, so that its bytes could change unseen.
    if signers.keys() != metadata.signatures.keys():
        raise TrustError("STO-K078", f"{name} holds a signature that does not count")
    ordered = tuple(signers[keyid] for keyid in sorted(signers))
    version = metadata.signed.version
    return RoleVersion(role, version, data, metadata.signed, threshold, ordered)


def _open(name: str, data: bytes, kind: type[_T], version: int) -> Metadata[_T]:
    """Parse metadata (hostile) that must be of `kind` and in its one spelling."""
    # `version` 0: any.
    try:
        check_shape(data, kind.type, name, BOUNDS.metadata_bytes)
        metadata = Metadata[_T].from_bytes(data)
        written = metadata.to_bytes()
    except (TrustError, RepositoryError, ValueError) as error:
        raise TrustError("STO-K013", f"{name} cannot be read") from error
    signed = metadata.signed
    if not isinstance(signed, kind) or version not in {0, signed.version}:
        raise TrustError("STO-K013", f"{name} is of another role or version")
    # Spaces and the order of fields are not signed; signatures have one spelling each
    # (`check_shape`).
    if written != data or metadata.unrecognized_fields:
        raise TrustError("STO-K078", f"{name} is not in the spelling that was signed")
    return metadata


def _listed(names: frozenset[str]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for name in names:
        match = _FILE.fullmatch(name)
        if match is not None:
            found.setdefault(match[2], set()).add(int(match[1]))
    return {role: frozenset(versions) for role, versions in found.items()}


def _former_roles(targets: Iterable[RoleVersion]) -> set[str]:
    found: set[str] = set()
    for one in targets:
        delegations = _targets(one).delegations
        found |= set((delegations.roles if delegations else None) or {})
    return found


def _targets(one: RoleVersion) -> Targets:
    return _as(one, Targets)


def _as(one: RoleVersion, kind: type[_T]) -> _T:
    """Return a verified file's contents, which `_open` found to be of `kind`."""
    assert isinstance(one.signed, kind)  # noqa: S101 - checked where it was parsed
    return one.signed
