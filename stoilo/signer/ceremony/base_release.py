"""The published release that a ceremony builds on, verified from its first root on.

A volunteer follows the timestamp. A ceremony must also read a release whose timestamp is
not signed yet, has expired, or was forged with a stolen online key: that is what it
repairs. So it takes every root, the newest file of each other role and the small targets
that those name, and verifies in full what people signed; of snapshot and timestamp only
the age is ever asked.
Trust: the files are hostile; the *first* root is only as good as its fingerprint, which
`review` prints and ``--root FILE`` compares.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Signed, TargetFile, Targets

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError
from stoilo.core.files import read_bounded
from stoilo.executor.verifier.trust import ReleaseFiles, travels
from stoilo.signer.ceremony.metadata import (
    RoleFile,
    open_role,
    open_root,
    open_targets,
    parse_role_name,
    targets_of,
)
from stoilo.signer.roles import OFFLINE, ceremony_bounds

_TIMESTAMP = "metadata/timestamp.json"


@dataclass(frozen=True, slots=True)
class BaseRelease:
    """A release whose offline roles hold.

    Attributes:
        files: metadata and small targets, by name.
        roots: every root, the first one first.
        targets: the newest targets.
        delegated: the newest metadata of each role that targets delegates.
        online: newest snapshot and timestamp, as far as there are any.
    """

    files: ReleaseFiles
    roots: tuple[RoleFile, ...]
    targets: RoleFile
    delegated: tuple[RoleFile, ...]
    online: tuple[RoleFile, ...]

    @property
    def root(self) -> Root:
        """The newest root."""
        return open_root(self.roots[-1]).signed

    @property
    def digest(self) -> Digest:
        """What names this release: its newest root, targets and delegated roles."""
        files = (self.roots[-1], self.targets, *self.delegated)
        lines = (f"{file.name} {file.signed_digest}\n" for file in files)
        return content_digest("".join(lines).encode())

    def role(self, name: str) -> RoleFile | None:
        """Return the newest metadata of an offline role, None where it has none."""
        files = (self.roots[-1], self.targets, *self.delegated)
        return next((file for file in files if file.role == name), None)

    def signed(self) -> Iterator[tuple[str, Signed]]:
        """Yield every role with its newest signed part, for `expiries`."""
        yield "root", self.root
        for file in (self.targets, *self.delegated):
            yield file.role, open_targets(file).signed
        for file in self.online:
            yield file.role, open_role(file).signed

    def names(self) -> Iterator[str]:
        """Yield the name of every target."""
        for file in (self.targets, *self.delegated):
            yield from targets_of(file)

    def info(self, name: str) -> TargetFile | None:
        """Return what the release says of target `name`."""
        prefix = name.partition("/")[0]
        file = self.role(prefix if self.role(prefix) is not None else "targets")
        return None if file is None else targets_of(file).get(name)

    def target(self, name: str) -> bytes | None:
        """Return a small target's bytes, None when the release does not name it.

        Raises ``STO-K052`` when it is named, and missing or damaged.
        """
        info = self.info(name)
        if info is None:
            return None
        data = self.files.get(f"targets/{stored_name(name, info.hashes['sha256'])}")
        if data is None or content_digest(data) != info.hashes["sha256"]:
            raise TrustError("STO-K052", f"target {name} is missing or damaged")
        return data


def open_published(directory: Path) -> BaseRelease:
    """Return the release in `directory`, its offline roles verified.

    Raises as `read_published` and `open_base`.
    """
    return open_base(read_published(directory))


def read_published(directory: Path) -> ReleaseFiles:
    """Return roots, newest metadata and small targets of a release directory.

    Raises ``STO-K050`` past the bounds, ``STO-K052`` for what cannot be read.
    """
    found: dict[str, bytes] = {}
    for name in _metadata_names(directory):
        found[name] = _read(directory, name)
    for name in tuple(found):
        for target in _target_names(name, found[name]):
            if (directory / target).is_file() and target not in found:
                found[target] = _read(directory, target)
        if len(found) > ceremony_bounds().max_files:
            raise TrustError("STO-K050", "the release holds too many files")
    return ReleaseFiles(tuple(sorted(found.items())))


def open_base(files: ReleaseFiles) -> BaseRelease:
    """Verify a release's offline roles from its first root on.

    Raises ``STO-K050`` for what cannot be read, ``STO-K052`` for what is missing or not
    signed by enough of its keys.
    """
    files = ReleaseFiles(tuple(sorted(files.files)))
    found = list(_role_files(files))
    roots = _root_chain([file for file in found if file.role == "root"])
    root = open_root(roots[-1]).signed
    targets = _newest(found, "targets")
    metadata = open_targets(targets)
    _check_signed(root, targets, metadata)
    delegated = []
    delegations = metadata.signed.delegations
    for name in (delegations.roles or {}) if delegations else {}:
        file = _newest(found, name)
        _check_signed(metadata.signed, file, open_targets(file))
        delegated.append(file)
    online = tuple(_online(found, files, root))
    return BaseRelease(files, roots, targets, tuple(delegated), online)


def stored_name(target: str, digest: str) -> str:
    """Return a target's consistent-snapshot name below ``targets/``."""
    folder, slash, base = target.rpartition("/")
    return f"{folder}{slash}{digest}.{base}"


def _role_files(files: ReleaseFiles) -> Iterator[RoleFile]:
    for name, data in files.files:
        folder, _, base = name.partition("/")
        parsed = parse_role_name(base) if folder == "metadata" else None
        if parsed is not None:
            yield RoleFile(parsed[1], parsed[0], data)


def _root_chain(found: list[RoleFile]) -> tuple[RoleFile, ...]:
    """Return the roots from version 1 on, each signed by its predecessor and itself."""
    roots = sorted(found, key=lambda file: file.version)
    # Who holds an old root walks the chain: a gap would leave him behind for ever.
    if [file.version for file in roots] != list(range(1, len(roots) + 1)) or not roots:
        raise TrustError(
            "STO-K052",
            "the release does not hold every root from the first one on",
            hint="roots are never deleted: restore them from a copy",
        )
    previous: Root | None = None
    for file in roots:
        metadata = open_root(file)
        if previous is not None:
            _check_signed(previous, file, metadata)
        # By its own keys as well: a root that nobody could follow is refused.
        _check_signed(metadata.signed, file, metadata)
        previous = metadata.signed
    return tuple(roots)


def _check_signed(
    delegator: Root | Targets, file: RoleFile, metadata: Metadata[Any]
) -> None:
    try:
        delegator.verify_delegate(file.role, metadata.signed_bytes, metadata.signatures)
    except (RepositoryError, ValueError) as error:
        raise TrustError(
            "STO-K052", f"{file.name} of the release is not signed by enough keys"
        ) from error


def _newest(found: list[RoleFile], role: str) -> RoleFile:
    files = [file for file in found if file.role == role]
    if not files:
        raise TrustError("STO-K052", f"the release lacks its role {role}")
    return max(files, key=lambda file: file.version)


def _online(
    found: list[RoleFile], files: ReleaseFiles, root: Root
) -> Iterator[RoleFile]:
    """Yield newest snapshot and timestamp, those that the root's online keys signed."""
    snapshots = [file for file in found if file.role == "snapshot"]
    if snapshots:
        newest = max(snapshots, key=lambda file: file.version)
        # A forged one is left out, not refused: the ceremony is what repairs
        # it.
        if _is_signed(root, newest):
            yield newest
    data = files.get("metadata/timestamp.json")
    if data is not None and _is_signed(root, RoleFile("timestamp", 0, data)):
        yield RoleFile("timestamp", 0, data)


def _is_signed(root: Root, file: RoleFile) -> bool:
    try:
        _check_signed(root, file, open_role(file))
    except TrustError:
        return False
    return True


def _metadata_names(directory: Path) -> Iterator[str]:
    """Yield every root, and the newest file of each other role."""
    newest: dict[str, int] = {}
    try:
        names = {path.name for path in (directory / "metadata").iterdir()}
    except OSError as error:
        raise TrustError("STO-K052", "the release has no metadata") from error
    for name in sorted(names):
        parsed = parse_role_name(name)
        if parsed is not None and parsed[1] == "root":
            yield f"metadata/{name}"
        elif parsed is not None:
            newest[parsed[1]] = max(parsed[0], newest.get(parsed[1], 0))
    for role, version in newest.items():
        yield f"metadata/{version}.{role}.json"
    if "timestamp.json" in names:
        yield _TIMESTAMP


def _target_names(name: str, data: bytes) -> Iterator[str]:
    parsed = parse_role_name(name.removeprefix("metadata/"))
    if parsed is None or parsed[1] not in OFFLINE or parsed[1] == "root":
        return
    for target, info in open_targets(
        RoleFile(parsed[1], parsed[0], data)
    ).signed.targets.items():
        digest = info.hashes.get("sha256", "")
        # Archives are named by their digest; a ceremony does not need their
        # bytes.
        if travels(target) and ".." not in target and not target.startswith("/"):
            yield f"targets/{stored_name(target, digest)}"


def _read(directory: Path, name: str) -> bytes:
    """Return one file's bytes; links and what is too large are refused."""
    bound = ceremony_bounds().metadata_bytes
    try:
        return read_bounded(directory / name, bound)
    except OSError as error:
        code = "STO-K050" if error.errno == errno.EFBIG else "STO-K052"
        raise TrustError(
            code, f"{name} of the release cannot be read: {error.strerror}"
        ) from error
