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

from tuf.api.metadata import Key, Root, Snapshot, Targets, Timestamp

from stoilo.core.errors import TrustError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.signer.ceremony.key_holders import role_row
from stoilo.signer.ceremony.metadata import RoleFile, open_role, open_root, signers_of

MAX_VERSIONS: Final = 1024
KEPT_SNAPSHOTS: Final = 3
_FILE = re.compile(r"metadata/([1-9][0-9]{0,8})\.([a-z][a-z-]{0,31})\.json")
_T = TypeVar("_T", Root, Snapshot, Targets, Timestamp)

Owner = Root | Targets
Reader = Callable[[str, int], bytes | None]
"""Reads one small file of a release, at most so many bytes; None when it is not there."""


@dataclass(frozen=True, slots=True)
class RoleVersion:
    """One verified metadata file."""

    file: RoleFile  # its role, version and bytes
    signed: Root | Snapshot | Targets | Timestamp  # what was signed
    threshold: int  # how many keys had to sign
    signers: tuple[Key, ...]  # the keys that did

    @property
    def role(self) -> str:
        """``root``, ``targets``, …."""
        return self.file.role

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self.file.data

    @property
    def path(self) -> str:
        """The file's name in the release."""
        return f"metadata/{self.file.name}"


@dataclass(frozen=True, slots=True)
class History:
    """All metadata of a release, oldest first within a role."""

    roots: tuple[RoleVersion, ...]  # every root
    targets: tuple[RoleVersion, ...]  # every version of the offline targets role
    # every version of every role that targets delegates or delegated
    delegated: tuple[RoleVersion, ...]
    # the timestamp, then the snapshots from the one in force downwards
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
        UsageError: STO-K052 when there is no root at all.
        TrustError: STO-K012 for a root or role that is not signed as it must be,
            STO-K050, STO-K013.
    """
    roots = _read_roots(read)
    if root is not None:
        _check_given(roots, root)
    listed = _listed(names or frozenset())
    timestamp = _by_any(_present(read, "timestamp", 0), roots[-1:])
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
        data = read(f"metadata/{version}.root.json", BOUNDS.metadata_bytes)
        if data is None:
            break
        file = RoleFile("root", version, data)
        owners: list[Owner] = [_as(one, Root) for one in roots[-1:]]
        roots.append(_verified(file, [*owners, open_root(file).signed]))
    if not roots:
        raise UsageError(
            "STO-K052",
            "there is no release here: metadata/1.root.json is missing",
            hint="name a release directory, a server's data directory or its /release URL",
        )
    return tuple(roots)


def _check_given(roots: tuple[RoleVersion, ...], given: bytes) -> None:
    """Refuse roots that the caller's own is not one of."""
    version = open_root(RoleFile("root", 0, given)).signed.version
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
    yield _by_any(_present(read, "snapshot", number), roots[-1:])
    if not everything:
        return
    ids = {tuple(sorted(_as(one, Root).roles["snapshot"].keyids)) for one in roots}
    kept = listed.get("snapshot", frozenset()) - {number}
    if len(ids) == 1:  # after a change of keys, versions need not follow on each other
        kept |= frozenset(range(max(1, number - KEPT_SNAPSHOTS + 1), number))
    for version in sorted(kept, reverse=True):
        if version > number and len(ids) == 1:
            raise TrustError(
                "STO-K013", f"snapshot {version} is newer than the release"
            )
        yield _by_any(_present(read, "snapshot", version), roots)


def _present(read: Reader, role: str, version: int) -> RoleFile:
    """Return a metadata file, or raise ``STO-K013``."""
    name = RoleFile(role, version, b"").name
    data = read(f"metadata/{name}", BOUNDS.metadata_bytes)
    if data is None:
        raise TrustError("STO-K013", f"the release lacks {name}")
    return RoleFile(role, version, data)


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
        raise TrustError("STO-K013", f"the release lacks its role {role}")
    found = []
    for version in range(1, last + 1):
        # The one in force answers to the newest owner, older ones to any before.
        allowed = owners[-1:] if version == last and not former else owners
        found.append(_by_any(_present(read, role, version), allowed))
    return found


def _by_any(file: RoleFile, owners: Iterable[RoleVersion]) -> RoleVersion:
    """Return the file, verified by the newest of `owners` whose keys signed it."""
    refusal = TrustError("STO-K012", f"nobody may sign {file.role}")
    for owner in reversed(tuple(owners)):
        signed = owner.signed
        if isinstance(signed, Root | Targets):
            try:
                return _verified(file, [signed])
            except TrustError as error:
                refusal = error
    raise refusal


def _verified(file: RoleFile, owners: list[Owner]) -> RoleVersion:
    """Return the file once every one of `owners` has its threshold of signatures."""
    metadata = open_role(file)
    # Spaces and the order of fields are not signed; signatures have one spelling each.
    if metadata.to_bytes() != file.data or metadata.unrecognized_fields:
        raise TrustError(
            "STO-K013", f"{file.name} is not in the spelling that was signed"
        )
    signers = signers_of(file, *owners)
    # Readers ignore one that does not count, so that its bytes could change unseen.
    if signers.keys() != metadata.signatures.keys():
        raise TrustError(
            "STO-K013", f"{file.name} holds a signature that does not count"
        )
    ordered = tuple(signers[keyid] for keyid in sorted(signers))
    threshold = role_row(owners[-1], file.role).threshold
    return RoleVersion(file, metadata.signed, threshold, ordered)


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
    """Return a verified file's contents, which `open_role` found to be of `kind`."""
    assert isinstance(one.signed, kind)  # noqa: S101 - checked where it was parsed
    return one.signed
